"""Requests of CipherService: whatever is wrong is named, with what came and what is allowed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from _request_builders import offsets
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from verifier.api import Limits
from verifier.api._cipher_requests import CipherRequests, check_key
from verifier.config import load_settings
from verifier.errors import ConfigError, NotServedError, RequestError
from verifier.manifest import load_manifest
from verifier.registry import Instance
from verifier.registry._parameters import allowed_numbers
from verifier.scheduling import Priority
from verifier.v1 import cipher_pb2 as pb
from verifier.v1 import verifier_pb2

ROOT = Path(__file__).parents[2]
LOADED = ("aes", "kuznyechik", "hight", "skinny")


@pytest.fixture(scope="module")
def ciphers(catalogue):
    """The real manifests of some ciphers, without devices; SM4 and ARIA are not loaded."""
    loaded = type(catalogue)()
    for number, name in enumerate(LOADED, 100):
        manifest = load_manifest(ROOT / "plugins" / name)
        instance = Instance(number, manifest, "digest", parameters=allowed_numbers(manifest))
        loaded.table = loaded.table.with_active(instance)
    return CipherRequests(loaded, Limits(max_items=1000, max_batch_bytes=100_000))


def changed(base: pb.CipherScheme, **fields) -> pb.CipherScheme:
    made = pb.CipherScheme()
    made.CopyFrom(base)
    for name, value in fields.items():
        setattr(made, name, value)
    return made


GCM = pb.CipherScheme(algorithm="CIPHER_ALGORITHM_AES", mode="CIPHER_MODE_GCM", direction="DIRECTION_ENCRYPT")
OPEN = changed(GCM, direction=pb.DIRECTION_DECRYPT)
CTR = changed(GCM, mode=pb.CIPHER_MODE_CTR, counter_format=pb.COUNTER_FORMAT_FULL_BLOCK)
CBC = changed(GCM, mode=pb.CIPHER_MODE_CBC)
ECB = changed(GCM, mode=pb.CIPHER_MODE_ECB)
GOST = changed(CTR, algorithm=pb.CIPHER_ALGORITHM_KUZNYECHIK, counter_format=pb.COUNTER_FORMAT_GOST_HALF_BLOCK)
HIGHT = changed(CTR, algorithm=pb.CIPHER_ALGORITHM_HIGHT, byte_order=pb.CIPHER_BYTE_ORDER_LOW_FIRST)
SM4 = changed(GCM, algorithm=pb.CIPHER_ALGORITHM_SM4)


def column(*values: bytes) -> verifier_pb2.Column:
    return verifier_pb2.Column(data=b"".join(values), offsets=offsets(*np.cumsum([0, *map(len, values)])))


def request(done: pb.CipherScheme, iv_bytes: int, *values: bytes, **fields) -> pb.TransformRequest:
    values = values or (b"message 1", b"2")
    whole = {
        "items": len(values),
        "scheme": done,
        "keys": [11],
        "data": column(*values),
        "iv": verifier_pb2.Column(data=bytes(iv_bytes * len(values))),
    }
    return pb.TransformRequest(**{**whole, **fields})


GOOD = {
    "gcm": request(GCM, 12),
    "gcm with associated data": request(GCM, 12, aad=column(b"a", b"")),
    "gcm decryption": request(OPEN, 12, tags=bytes(32)),
    "ctr": request(CTR, 16, first_block=5),
    "gost": request(GOST, 8),
    "hight": request(HIGHT, 8),
    "cbc": request(CBC, 16, bytes(16), bytes(0)),
    "ecb": request(ECB, 0, bytes(32), bytes(16)),
    "keys": request(GCM, 12, keys=[5, 6, 7], key_index=offsets(2, 0)),
    "one item without offsets": request(GCM, 12, b"abc", data=verifier_pb2.Column(data=b"abc")),
    "long": request(GCM, 12, bytes(5000), bytes(1)),
}


@pytest.mark.parametrize("name", GOOD)
def test_what_is_right_is_read(ciphers, name):
    read = ciphers.transform(GOOD[name])
    assert read.messages.lengths.size == GOOD[name].items
    assert read.priority is Priority.POOL


def test_what_is_read_is_what_was_sent(ciphers):
    read = ciphers.transform(GOOD["keys"])
    assert (read.keys, read.index.tolist(), read.short) == ([5, 6, 7], [2, 0], True)
    assert read.messages.data.tobytes() == b"message 12"
    assert read.messages.lengths.tolist() == [9, 1]
    assert not ciphers.transform(GOOD["long"]).short
    iv = verifier_pb2.Column(data=b"\1" * 8 + b"\2" * 8)
    counters = ciphers.transform(request(GOST, 8, iv=iv)).messages.iv
    assert counters.tobytes() == b"\1" * 8 + bytes(8) + b"\2" * 8 + bytes(8)
    late = ciphers.transform(request(CTR, 16, b"x", iv=verifier_pb2.Column(data=b"\xff" * 16), first_block=3))
    assert late.messages.iv.tobytes() == bytes(15) + b"\2"
    assert ciphers.transform(request(HIGHT, 8)).operations.option == {"byte_order": 0}


BAD = [
    ("no algorithm", request(changed(GCM, algorithm=0), 12), "scheme.algorithm", "not set; accepted are AES, SM4"),
    ("unknown algorithm", request(changed(GCM, algorithm=99), 12), "scheme.algorithm", "99 is not a value"),
    ("no mode", request(changed(GCM, mode=0), 12), "scheme.mode", "not set; accepted are ECB, CTR, CBC, GCM"),
    (
        "no gcm of 64-bit blocks",
        request(changed(HIGHT, mode=pb.CIPHER_MODE_GCM), 12),
        "scheme.mode",
        "GCM is not accepted; accepted are ECB, CTR, CBC",
    ),
    ("no direction", request(changed(GCM, direction=0), 12), "scheme.direction", "accepted are ENCRYPT, DECRYPT"),
    (
        "authenticate is for streams",
        request(changed(GCM, direction=pb.DIRECTION_AUTHENTICATE), 12),
        "scheme.direction",
        "AUTHENTICATE is not accepted",
    ),
    ("no counter format", request(changed(CTR, counter_format=0), 16), "scheme.counter_format", "FULL_BLOCK"),
    (
        "gost for aes",
        request(changed(CTR, counter_format=pb.COUNTER_FORMAT_GOST_HALF_BLOCK), 8),
        "scheme.counter_format",
        "GOST_HALF_BLOCK is not accepted; accepted are FULL_BLOCK",
    ),
    ("counter format of cbc", request(changed(CTR, mode=pb.CIPHER_MODE_CBC), 16), "scheme.counter_format", "CBC"),
    ("no byte order", request(changed(HIGHT, byte_order=0), 8), "scheme.byte_order", "accepted are LOW_FIRST, HIGH"),
    ("byte order of aes", request(changed(GCM, byte_order=1), 12), "scheme.byte_order", "AES has one byte order"),
    ("unknown plugin", request(changed(GCM, plugin="aes@9.0.0"), 12), "plugin", "aes@9.0.0 is not served"),
    ("no items", request(GCM, 12, items=0), "items", "0; a request has 1 to 1000"),
    ("too many items", request(GCM, 12, items=1001), "items", "1001; a request has 1 to 1000"),
    ("no offsets", request(GCM, 12, data=verifier_pb2.Column(data=b"ab")), "data.offsets", "2 items need 3 offsets"),
    (
        "offsets run backwards",
        request(GCM, 12, data=verifier_pb2.Column(data=b"ab", offsets=offsets(0, 3, 2))),
        "data.offsets",
        "run backwards at item 1",
    ),
    ("short iv", request(CTR, 15), "iv.data", "30 bytes; 2 items in CTR need 32, 16 each"),
    ("iv of gcm", request(GCM, 16), "iv.data", "32 bytes; 2 items in GCM need 24, 12 each"),
    ("iv of ecb", request(ECB, 16, bytes(16)), "iv.data", "16 bytes; 1 items in ECB need 0, 0 each"),
    ("whole block as gost iv", request(GOST, 16), "iv.data", "32 bytes; 2 items in CTR need 16, 8 each"),
    ("iv with offsets", request(GCM, 12, iv=column(bytes(12), bytes(12))), "iv.offsets", "12 bytes each"),
    ("no tags", request(OPEN, 12), "tags", "0 bytes; 2 items need 32, 16 each"),
    ("short tags", request(OPEN, 12, tags=bytes(30)), "tags", "30 bytes; 2 items need 32"),
    ("tags of an encryption", request(GCM, 12, tags=bytes(32)), "tags", "need 0, ENCRYPT in GCM takes none"),
    ("aad of ctr", request(CTR, 16, aad=column(b"a", b"b")), "aad", "CTR authenticates nothing"),
    ("aad without offsets", request(GCM, 12, aad=verifier_pb2.Column(data=b"a")), "aad.offsets", "3 offsets"),
    ("ecb ends in a block", request(ECB, 0, bytes(16), bytes(17)), "data: item 1", "17 bytes end in a block of 1"),
    ("cbc ends in a block", request(CBC, 16, bytes(600), bytes(16)), "data: item 0", "whole blocks of 16: pad"),
    ("first block of gcm", request(GCM, 12, first_block=1), "first_block", "1; only messages in CTR"),
    ("no key", request(GCM, 12, keys=[]), "keys", "0 handles; a request has 1 to 1000"),
    ("no index", request(GCM, 12, keys=[1, 2]), "key_index", "missing: 2 keys are given"),
    ("short index", request(GCM, 12, keys=[1, 2], key_index=bytes(4)), "key_index.data", "4 bytes, but 2 items"),
    (
        "index beyond the keys",
        request(GCM, 12, keys=[1, 2], key_index=offsets(1, 2)),
        "key_index",
        "item 1 has key 2; `keys` has 2, counted from 0",
    ),
    (
        "long with several keys",
        request(GCM, 12, bytes(513), b"", keys=[1, 2], key_index=offsets(0, 1)),
        "data.offsets",
        "item 0 has 513 bytes; with several keys an item has at most 512",
    ),
    ("too long", request(GCM, 12, bytes(100_001)), "data", "a request has at most 100000: send several, or a stream"),
    (
        "too many cells",
        request(GCM, 12, *[b"x"] * 200),
        "data",
        "bytes in cells of 512; a request has at most 100000",
    ),
    (
        "too many parts",
        request(CBC, 16, *[bytes(528)] * 13),
        "data",
        "bytes in cells of 8192; a request has at most 100000",
    ),
    ("unknown priority", request(GCM, 12, priority=9), "priority", "9 is not a value of the contract"),
]


@pytest.mark.parametrize(("wrong", "field", "problem"), [case[1:] for case in BAD], ids=[case[0] for case in BAD])
def test_what_is_wrong_is_named(ciphers, wrong, field, problem):
    with pytest.raises(RequestError) as caught:
        ciphers.transform(wrong)
    assert caught.value.field == field
    assert problem in caught.value.problem, caught.value.problem


_enum = st.integers(-1, 9)
_column = st.builds(verifier_pb2.Column, data=st.binary(max_size=64), offsets=st.binary(max_size=16))
_scheme = st.builds(
    pb.CipherScheme,
    algorithm=_enum,
    mode=_enum,
    direction=_enum,
    byte_order=_enum,
    counter_format=_enum,
    plugin=st.sampled_from(["", "", "aes", "aes@1.0.0", "@", "x@y@z"]),
)


@given(
    st.builds(
        pb.TransformRequest,
        items=st.sampled_from([0, 1, 1, 2, 3, 2**32 - 1]),
        scheme=st.one_of(_scheme, st.sampled_from([GCM, OPEN, CTR, CBC, ECB, GOST, HIGHT])),
        keys=st.lists(st.integers(0, 2**64 - 1), max_size=3),
        key_index=st.binary(max_size=12),
        data=_column,
        iv=_column,
        aad=_column,
        tags=st.binary(max_size=48),
        first_block=st.sampled_from([0, 0, 1, 2**64 - 1]),
        priority=_enum,
    )
)
@settings(max_examples=400, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_whatever_comes_is_read_or_refused(ciphers, asked):
    """Nothing else is raised, and what is read has one value of each field an item."""
    try:
        read = ciphers.transform(asked)
    except RequestError:
        return
    messages = read.messages
    assert messages.lengths.size == asked.items == len(messages.iv)
    assert messages.lengths.sum() == messages.data.size
    assert read.index is None or (read.index < len(read.keys)).all()


def test_a_cipher_that_is_not_loaded_says_how_to_load_it(ciphers):
    for call in (
        lambda: ciphers.transform(request(SM4, 12)),
        lambda: ciphers.check_loaded(check_key(pb.CIPHER_ALGORITHM_SM4, bytes(16))),
    ):
        with pytest.raises(NotServedError, match=r"verifier plugin load sm4.*plugins\.load = .*\"sm4\""):
            call()


@pytest.mark.parametrize(
    ("algorithm", "size", "sizes"),
    [
        (pb.CIPHER_ALGORITHM_AES, 17, "16, 24, 32"),
        (pb.CIPHER_ALGORITHM_SM4, 32, "16"),
        (pb.CIPHER_ALGORITHM_KUZNYECHIK, 16, "32"),
        (pb.CIPHER_ALGORITHM_SKINNY_64, 32, "8, 16, 24"),
        (pb.CIPHER_ALGORITHM_SKINNY_128, 0, "16, 32, 48"),
    ],
)
def test_keys_of_another_length_are_refused(algorithm, size, sizes):
    with pytest.raises(RequestError, match=rf"key: {size} bytes; keys of \w+ have {sizes}$"):
        check_key(algorithm, bytes(size))


def test_the_table_of_ciphers_is_what_the_manifests_have():
    from verifier.ciphers import CIPHERS

    for cipher in CIPHERS.values():
        manifest = load_manifest(ROOT / "plugins" / cipher.plugin)
        bulk = manifest.operation("ctr", cipher.name)
        assert bulk.widths == {"data": cipher.stripe_bytes, "counter": cipher.block_bytes}
        assert (manifest.operation("gcm_tag", cipher.name) is not None) == ("GCM" in cipher.modes)
        assert all(manifest.operation(name, cipher.name) for name in ("encrypt_each", "decrypt_each", "cbc_decrypt"))


def test_a_message_in_gcm_has_a_bound(ciphers):
    """Of 2^32 - 2 blocks: then the counter would come to the tag's."""
    read = ciphers.scheme(GCM)
    most = ((1 << 32) - 2) * 16
    read.check_length("data", most)
    with pytest.raises(RequestError, match=f"data: {most + 1} bytes; a message in GCM has at most {most}"):
        read.check_length("data", most + 1)


def test_what_is_kept_back_fits_an_answer():
    with pytest.raises(ConfigError, match=r"cipher\.stream_held_bytes must be 65536 below server\.max_message_bytes"):
        load_settings(overrides={"cipher": {"stream_held_bytes": 64 << 20}})


@pytest.mark.parametrize("name", ["data", "iv", "aad"])
@pytest.mark.parametrize("field", ["shared_data", "shared_offsets"])
def test_regions_are_refused_and_do_not_pass_for_empty_columns(ciphers, name, field):
    asked = request(GCM, 12, b"")
    getattr(getattr(asked, name), field).region = 1
    with pytest.raises(RequestError, match=rf"^{name}\.{field}: not taken by this call"):
        ciphers.transform(asked)
