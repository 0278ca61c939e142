"""Requests to batches: every wrong field has its own error, and right ones become the right columns and keys."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from verifier.errors import CapacityError, NotFoundError, NotServedError, RequestError
from verifier.model import Batch, BatchResult, Code
from verifier.scheduling import Priority
from verifier.schemes import DEFAULT_SM2_USER_ID, MAX_SM2_USER_ID_BYTES
from verifier.v1 import verifier_pb2 as pb


def offsets(*numbers: int) -> bytes:
    return np.array(numbers, "<u4").tobytes()


def sm2(**fields) -> pb.Scheme:
    scheme = {
        "algorithm": pb.ALGORITHM_SM2,
        "input_kind": pb.INPUT_KIND_DIGEST,
        "signature_encoding": pb.SIGNATURE_ENCODING_RAW_RS,
        "key_encoding": pb.KEY_ENCODING_RAW_XY,
    }
    return pb.Scheme(**{**scheme, **fields})


def ecdsa(**fields) -> pb.Scheme:
    return sm2(**{"algorithm": pb.ALGORITHM_ECDSA_SECP256K1, **fields})


def verify(items=2, scheme=None, **fields) -> pb.VerifyRequest:
    columns = {
        "input": pb.Column(data=bytes(32 * items)),
        "signature": pb.Column(data=bytes(64 * items)),
        "key": pb.Column(data=bytes(64 * items)),
    }
    return pb.VerifyRequest(items=items, scheme=scheme or sm2(), **{**columns, **fields})


def message(items=2) -> dict:
    return {"input": pb.Column(data=b"ab", offsets=offsets(0, 1, 2))} if items == 2 else {}


def test_a_plain_batch(requests):
    prepared = requests.verify(verify(priority=pb.PRIORITY_CONSENSUS))
    batch = prepared.batch
    assert isinstance(batch, Batch)
    assert batch.items == 2
    assert batch.key.plugin == "sm2"
    assert batch.key.operation == "verify/SM2"
    assert batch.key.parameters == (
        pb.INPUT_KIND_DIGEST,
        pb.SIGNATURE_ENCODING_RAW_RS,
        pb.KEY_ENCODING_RAW_XY,
        pb.LOW_S_ACCEPT_ANY,
    )
    assert [column.stride for column in batch.inputs] == [32, 64, 64]
    assert prepared.priority is Priority.CONSENSUS
    assert requests.verify(verify()).priority is Priority.POOL


BAD = [
    # what, request, field, words of the error
    ("no items", lambda: verify(items=0), "items", "1 to 1000"),
    ("too many items", lambda: verify(items=1001), "items", "1001; a batch has 1 to 1000"),
    ("no scheme", lambda: pb.VerifyRequest(items=1), "scheme.algorithm", "not set; accepted are SM2"),
    ("unknown algorithm", lambda: verify(scheme=sm2(algorithm=77)), "scheme.algorithm", "77 is not a value"),
    ("no input kind", lambda: verify(scheme=sm2(input_kind=0)), "scheme.input_kind", "not set; accepted are DIGEST"),
    ("unknown input kind", lambda: verify(scheme=sm2(input_kind=9)), "scheme.input_kind", "9 is not a value"),
    (
        "input kind of another algorithm",
        lambda: verify(scheme=ecdsa(input_kind=pb.INPUT_KIND_HASH_AS_MESSAGE)),
        "scheme.input_kind",
        "HASH_AS_MESSAGE is not accepted; accepted are DIGEST, MESSAGE",
    ),
    (
        "no signature encoding",
        lambda: verify(scheme=sm2(signature_encoding=0)),
        "scheme.signature_encoding",
        "RAW_RS",
    ),
    (
        "signature encoding of another call",
        lambda: verify(scheme=sm2(signature_encoding=pb.SIGNATURE_ENCODING_RAW_RSV)),
        "scheme.signature_encoding",
        "RAW_RSV is not accepted",
    ),
    ("no key encoding", lambda: verify(scheme=sm2(key_encoding=0)), "scheme.key_encoding", "RAW_XY"),
    ("unknown low s", lambda: verify(scheme=sm2(low_s=3)), "scheme.low_s", "ACCEPT_ANY, REQUIRE"),
    ("hash of another algorithm", lambda: verify(scheme=sm2(hash=pb.HASH_SHA256)), "scheme.hash", "accepted are SM3"),
    (
        "no hash for a message",
        lambda: verify(scheme=ecdsa(input_kind=pb.INPUT_KIND_MESSAGE), **message()),
        "scheme.hash",
        "not set; accepted are SHA256",
    ),
    ("unknown hash", lambda: verify(scheme=ecdsa(hash=99)), "scheme.hash", "99 is not a value"),
    ("digest width", lambda: verify(scheme=sm2(digest_bytes=20)), "scheme.digest_bytes", "20 is not accepted"),
    (
        "user id of an algorithm without",
        lambda: verify(scheme=ecdsa(sm2_user_id=b"")),
        "scheme.sm2_user_id",
        "must not be set",
    ),
    (
        "long user id",
        lambda: verify(scheme=sm2(sm2_user_id=bytes(8192))),
        "scheme.sm2_user_id",
        "8192 bytes; the limit is 8191",
    ),
    ("input length", lambda: verify(input=pb.Column(data=bytes(63))), "input.data", "63 bytes, but 2 items of 32"),
    ("signature length", lambda: verify(signature=pb.Column(data=bytes(129))), "signature.data", "129 bytes"),
    ("key length", lambda: verify(key=pb.Column(data=bytes(130))), "key.data", "2 items of 64 bytes are 128"),
    ("no key", lambda: verify(key=pb.Column()), "key.data", "0 bytes"),
    (
        "offsets too short",
        lambda: verify(input=pb.Column(data=b"ab", offsets=offsets(0, 2))),
        "input.offsets",
        "2 items need 3 offsets",
    ),
    (
        "offsets cut inside a number",
        lambda: verify(input=pb.Column(data=b"ab", offsets=offsets(0, 1, 2)[:-1])),
        "input.offsets",
        "11 bytes",
    ),
    (
        "offsets that run backwards",
        lambda: verify(input=pb.Column(data=b"ab", offsets=offsets(0, 3, 2))),
        "input.offsets",
        "backwards at item 1",
    ),
    (
        "offsets that do not start at 0",
        lambda: verify(input=pb.Column(data=b"ab", offsets=offsets(1, 1, 2))),
        "input.offsets",
        "first offset is 1",
    ),
    (
        "offsets past the end",
        lambda: verify(input=pb.Column(data=b"ab", offsets=offsets(0, 1, 2**32 - 1))),
        "input.offsets",
        "last offset is 4294967295",
    ),
    (
        "a message without offsets",
        lambda: verify(scheme=sm2(input_kind=pb.INPUT_KIND_MESSAGE)),
        "input.offsets",
        "3 offsets are needed",
    ),
    (
        "DER without offsets",
        lambda: verify(scheme=sm2(signature_encoding=pb.SIGNATURE_ENCODING_DER_STRICT)),
        "signature.offsets",
        "missing",
    ),
    (
        "a key beside one in the signature",
        lambda: verify(
            scheme=sm2(
                key_encoding=pb.KEY_ENCODING_IN_SIGNATURE, signature_encoding=pb.SIGNATURE_ENCODING_RAW_RS_KEY
            ),
            signature=pb.Column(data=bytes(256)),
        ),
        "key.data",
        "2 items of 0 bytes",
    ),
    (
        "key offsets beside a key in the signature",
        lambda: verify(
            scheme=sm2(
                key_encoding=pb.KEY_ENCODING_IN_SIGNATURE, signature_encoding=pb.SIGNATURE_ENCODING_RAW_RS_KEY
            ),
            signature=pb.Column(data=bytes(256)),
            key=pb.Column(offsets=offsets(0, 0, 0)),
        ),
        "key.offsets",
        "must be empty",
    ),
    (
        "too many bytes",
        lambda: verify(
            scheme=sm2(input_kind=pb.INPUT_KIND_MESSAGE),
            input=pb.Column(data=bytes(100_000), offsets=offsets(0, 1, 100_000)),
        ),
        "columns",
        "at most 100000",
    ),
    ("unknown priority", lambda: verify(priority=5), "priority", "0 to 4"),
    ("a key table for nothing", lambda: verify(key_table=bytes(64)), "key_table", "must be empty"),
    ("a key set for nothing", lambda: verify(key_set=5), "key_set", "must be empty"),
]


@pytest.mark.parametrize(("make", "field", "words"), [case[1:] for case in BAD], ids=[case[0] for case in BAD])
def test_bad_input_names_the_field_and_the_limit(requests, make, field, words):
    with pytest.raises(RequestError) as caught:
        requests.verify(make())
    assert not isinstance(caught.value, NotServedError)
    assert caught.value.field == field
    assert words in str(caught.value)


def test_what_no_plugin_serves(requests):
    with pytest.raises(NotServedError, match="sm9"):
        requests.verify(verify(scheme=sm2(plugin="sm9")))
    with pytest.raises(NotServedError, match=r"sm2@9\.9\.9"):
        requests.verify(verify(scheme=sm2(plugin="sm2@9.9.9")))
    with pytest.raises(NotServedError, match="digest for SHA256"):
        requests.digest(pb.DigestRequest(items=1, hash=pb.HASH_SHA256, input=pb.Column(offsets=offsets(0, 0))))
    with pytest.raises(NotServedError, match="recover for SM2"):
        requests.recover(pb.RecoverRequest(items=1, scheme=sm2(signature_encoding=pb.SIGNATURE_ENCODING_RAW_RSV)))


def test_a_pinned_version_is_in_the_key(requests):
    assert requests.verify(verify(scheme=sm2(plugin="sm2@1.0.0"))).batch.key.version == "1.0.0"
    assert requests.verify(verify(scheme=sm2(plugin="sm2"))).batch.key.version is None


def test_an_algorithm_outside_the_contract_is_reached_by_its_plugins_name(requests):
    scheme = pb.Scheme(plugin="parity", input_kind=pb.INPUT_KIND_MESSAGE)
    request = pb.VerifyRequest(items=2, scheme=scheme, input=pb.Column(data=b"ab", offsets=offsets(0, 1, 2)))
    assert requests.verify(request).batch.key.operation == "verify/PARITY"
    request.signature.data = b"x"
    with pytest.raises(RequestError, match="signature: must be empty"):
        requests.verify(request)


def test_empty_messages_are_items(requests):
    request = verify(scheme=sm2(input_kind=pb.INPUT_KIND_MESSAGE), input=pb.Column(offsets=offsets(0, 0, 0)))
    assert requests.verify(request).batch.inputs[0].offsets.tolist() == [0, 0, 0]


def test_a_fixed_encoding_may_come_with_offsets(requests):
    request = verify(signature=pb.Column(data=bytes(100), offsets=offsets(0, 63, 100)))
    assert requests.verify(request).batch.inputs[1].offsets.tolist() == [0, 63, 100]


def test_user_ids(requests):
    def constant(**fields):
        kind = {"input_kind": pb.INPUT_KIND_HASH_AS_MESSAGE}
        return requests.verify(verify(scheme=sm2(**{**kind, **fields}))).batch.key.constant

    assert constant() == DEFAULT_SM2_USER_ID
    assert constant(sm2_user_id=b"") == b"", "empty is not absent"
    assert constant(sm2_user_id=b"x" * MAX_SM2_USER_ID_BYTES) == b"x" * MAX_SM2_USER_ID_BYTES
    digest = constant(input_kind=pb.INPUT_KIND_DIGEST, sm2_user_id=b"other")
    assert digest == DEFAULT_SM2_USER_ID, "a digest has no user id in it, so such batches may be merged"


def test_fields_that_do_not_matter_do_not_keep_batches_apart(requests):
    plain = requests.verify(verify(scheme=ecdsa())).batch.key
    assert requests.verify(verify(scheme=ecdsa(hash=pb.HASH_KECCAK256))).batch.key == plain
    assert requests.verify(verify(scheme=ecdsa(low_s=pb.LOW_S_ACCEPT_ANY, digest_bytes=32))).batch.key == plain
    assert requests.verify(verify(scheme=ecdsa(low_s=pb.LOW_S_REQUIRE))).batch.key != plain
    message = ecdsa(input_kind=pb.INPUT_KIND_MESSAGE, hash=pb.HASH_KECCAK256)
    request = verify(scheme=message, input=pb.Column(data=b"ab", offsets=offsets(0, 1, 2)))
    assert pb.HASH_KECCAK256 in requests.verify(request).batch.key.parameters


def test_digests_of_other_widths(requests):
    batch = requests.verify(verify(scheme=ecdsa(digest_bytes=20), input=pb.Column(data=bytes(40)))).batch
    assert batch.inputs[0].stride == 20
    assert 20 in batch.key.parameters


class TestKeyTables:
    TABLE = np.arange(5 * 64, dtype=np.uint8).reshape(5, 64)

    def request(self, indices, **fields):
        return verify(
            items=len(indices),
            scheme=sm2(key_encoding=pb.KEY_ENCODING_INDEX),
            key=pb.Column(data=np.array(indices, "<u4").tobytes()),
            **{"key_table": self.TABLE.tobytes(), **fields},
        )

    def test_keys_are_gathered(self, requests):
        prepared = requests.verify(self.request([4, 0, 0, 3]))
        key = prepared.batch.inputs[2]
        np.testing.assert_array_equal(key.data.reshape(4, 64), self.TABLE[[4, 0, 0, 3]])
        assert pb.KEY_ENCODING_RAW_XY in prepared.batch.key.parameters
        assert prepared.refused.size == 0

    def test_bad_indices_are_the_items_own_problem(self, requests):
        prepared = requests.verify(self.request([4, 5, 0, 2**32 - 1]))
        assert prepared.refused.tolist() == [1, 3]
        np.testing.assert_array_equal(prepared.batch.inputs[2].data.reshape(4, 64)[[0, 2]], self.TABLE[[4, 0]])

    @pytest.mark.parametrize(
        ("fields", "field"),
        [
            ({"key_table": b""}, "key_table"),
            ({"key_table": bytes(65)}, "key_table"),
            ({"key_set": 7}, "key_table"),
            ({"key": pb.Column(data=bytes(9))}, "key.data"),
            ({"key": pb.Column(data=bytes(8), offsets=offsets(0, 4, 8))}, "key.offsets"),
            ({"key_table": bytes(64 * 2000)}, "columns"),
        ],
    )
    def test_bad_tables(self, requests, fields, field):
        request = self.request([0, 1])
        for name, value in fields.items():
            if isinstance(value, pb.Column):
                getattr(request, name).CopyFrom(value)
            else:
                setattr(request, name, value)
        with pytest.raises(RequestError) as caught:
            requests.verify(request)
        assert caught.value.field == field


class TestKeySets:
    def register(self, requests, key_sets, column, encoding=pb.KEY_ENCODING_RAW_XY, items=3):
        request = pb.RegisterKeysRequest(algorithm=pb.ALGORITHM_SM2, key_encoding=encoding, keys=column, items=items)
        return requests.keys(request)

    def use(self, requests, handle, indices, **fields):
        return requests.verify(
            verify(
                items=len(indices),
                scheme=sm2(**{"key_encoding": pb.KEY_ENCODING_INDEX, **fields}),
                key=pb.Column(data=np.array(indices, "<u4").tobytes()),
                key_set=handle,
            )
        )

    def test_fixed_width_keys(self, requests, key_sets):
        rows = np.arange(3 * 33, dtype=np.uint8).reshape(3, 33)
        keys, check = self.register(
            requests, key_sets, pb.Column(data=rows.tobytes()), pb.KEY_ENCODING_SEC1_COMPRESSED
        )
        assert check.items == 3
        handle = key_sets.add(keys)
        prepared = self.use(requests, handle, [2, 9, 1])
        np.testing.assert_array_equal(prepared.batch.inputs[2].data.reshape(3, 33)[[0, 2]], rows[[2, 1]])
        assert prepared.refused.tolist() == [1]
        assert pb.KEY_ENCODING_SEC1_COMPRESSED in prepared.batch.key.parameters

    def test_keys_of_any_width(self, requests, key_sets):
        column = pb.Column(data=b"aabbbc", offsets=offsets(0, 2, 5, 6))
        keys, _ = self.register(requests, key_sets, column, pb.KEY_ENCODING_SPKI)
        prepared = self.use(requests, key_sets.add(keys), [1, 1, 2, 0, 5])
        column = prepared.batch.inputs[2]
        assert column.data.tobytes() == b"bbbbbbcaaaa"
        assert column.offsets.tolist() == [0, 3, 6, 7, 9, 11]
        assert prepared.refused.tolist() == [4]

    def test_keys_that_are_none_are_refused_by_index(self, requests, key_sets):
        keys, check = self.register(requests, key_sets, pb.Column(data=bytes(192)))
        result = BatchResult.undetermined(check.items)
        result.codes[:] = (Code.INVALID, Code.KEY_NOT_ON_CURVE, Code.VALID)
        handle = key_sets.add(requests.usable(keys, result))
        assert self.use(requests, handle, [0, 1, 2, 1]).refused.tolist() == [1, 3]

    def test_handles(self, requests, key_sets):
        keys, _ = self.register(requests, key_sets, pb.Column(data=bytes(192)))
        handle = key_sets.add(keys)
        key_sets.release(handle)
        with pytest.raises(NotFoundError):
            key_sets.release(handle)
        with pytest.raises(NotFoundError, match="not registered"):
            self.use(requests, handle, [0])

    def test_a_key_set_of_another_algorithm(self, requests, key_sets):
        keys, _ = self.register(requests, key_sets, pb.Column(data=bytes(192)))
        with pytest.raises(RequestError, match="for SM2, not ECDSA_SECP256K1"):
            self.use(requests, key_sets.add(keys), [0], algorithm=pb.ALGORITHM_ECDSA_SECP256K1)

    def test_bounds(self, requests, key_sets):
        keys, _ = self.register(requests, key_sets, pb.Column(data=bytes(192)))
        for _ in range(3):
            key_sets.add(keys)
        with pytest.raises(CapacityError, match="3 key sets"):
            key_sets.add(keys)

    def test_bounds_in_bytes(self, requests, key_sets):
        with pytest.raises(CapacityError, match="4096 bytes"):
            self.register(requests, key_sets, pb.Column(data=bytes(64 * 100)), items=100)

    @pytest.mark.parametrize(
        ("encoding", "column", "field"),
        [
            (pb.KEY_ENCODING_UNSPECIFIED, pb.Column(data=bytes(192)), "key_encoding"),
            (pb.KEY_ENCODING_INDEX, pb.Column(data=bytes(12)), "key_encoding"),
            (pb.KEY_ENCODING_IN_SIGNATURE, pb.Column(), "key_encoding"),
            (pb.KEY_ENCODING_RAW_XY, pb.Column(data=bytes(191)), "keys.data"),
            (pb.KEY_ENCODING_SPKI, pb.Column(data=bytes(191)), "keys.offsets"),
            (pb.KEY_ENCODING_SPKI, pb.Column(data=bytes(1027), offsets=offsets(0, 1025, 1026, 1027)), "keys.offsets"),
        ],
    )
    def test_bad_keys(self, requests, key_sets, encoding, column, field):
        with pytest.raises(RequestError) as caught:
            self.register(requests, key_sets, column, encoding)
        assert caught.value.field == field


class TestRecover:
    def request(self, **fields):
        scheme = ecdsa(signature_encoding=pb.SIGNATURE_ENCODING_RAW_RSV, key_encoding=0)
        columns = {"input": pb.Column(data=bytes(64)), "signature": pb.Column(data=bytes(130))}
        return pb.RecoverRequest(**{"items": 2, "scheme": scheme, **columns, **fields})

    def test_addresses_are_made_only_when_asked_for(self, requests):
        plain = requests.recover(self.request())
        asked = requests.recover(self.request(address_hash=pb.HASH_KECCAK256))
        assert (plain.wants_addresses, asked.wants_addresses) == (False, True)
        assert plain.output_bytes == (64, 20)
        assert plain.batch.key.parameters[-1] == 0
        assert asked.batch.key.parameters[-1] == pb.HASH_KECCAK256

    @pytest.mark.parametrize(
        ("fields", "field"),
        [
            ({"address_hash": pb.HASH_SHA256}, "address_hash"),
            ({"address_hash": 42}, "address_hash"),
            ({"signature": pb.Column(data=bytes(128))}, "signature.data"),
            ({"items": 0}, "items"),
            ({"scheme": ecdsa()}, "scheme.signature_encoding"),
        ],
    )
    def test_bad_input(self, requests, fields, field):
        with pytest.raises(RequestError) as caught:
            requests.recover(self.request(**fields))
        assert caught.value.field == field


class TestDigest:
    def test_a_batch(self, requests):
        request = pb.DigestRequest(items=2, hash=pb.HASH_SM3, input=pb.Column(data=b"ab", offsets=offsets(0, 0, 2)))
        prepared = requests.digest(request)
        assert prepared.batch.key.operation == "digest/SM3"
        assert prepared.output_bytes == (32,)

    @pytest.mark.parametrize(
        ("fields", "field"),
        [
            ({"hash": 0}, "hash"),
            ({"hash": 88}, "hash"),
            ({"input": pb.Column(data=b"ab")}, "input.offsets"),
            ({"items": 5000}, "items"),
        ],
    )
    def test_bad_input(self, requests, fields, field):
        good = {"items": 2, "hash": pb.HASH_SM3, "input": pb.Column(data=b"ab", offsets=offsets(0, 0, 2))}
        with pytest.raises(RequestError) as caught:
            requests.digest(pb.DigestRequest(**{**good, **fields}))
        assert caught.value.field == field


_column = st.builds(pb.Column, data=st.binary(max_size=300), offsets=st.binary(max_size=24))
_enum = st.integers(-1, 8)
_scheme = st.builds(
    pb.Scheme,
    algorithm=_enum,
    input_kind=_enum,
    signature_encoding=_enum,
    key_encoding=_enum,
    low_s=_enum,
    hash=_enum,
    digest_bytes=st.sampled_from([0, 1, 20, 32, 64, 2**32 - 1]),
    plugin=st.sampled_from(["", "", "sm2", "ecdsa@1.0.0", "@", "parity", "x@y@z", "\u0000"]),
)


@settings(max_examples=400, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    items=st.integers(0, 5),
    scheme=_scheme,
    user_id=st.none() | st.binary(max_size=3),
    columns=st.tuples(_column, _column, _column),
    table=st.binary(max_size=130),
    key_set=st.integers(0, 2),
    priority=_enum,
)
def test_any_request_is_a_batch_or_a_request_error(
    requests, items, scheme, user_id, columns, table, key_set, priority
):
    if user_id is not None:
        scheme.sm2_user_id = user_id
    fields = {"items": items, "scheme": scheme, "input": columns[0], "signature": columns[1], "priority": priority}
    calls = (
        lambda: requests.verify(pb.VerifyRequest(**fields, key=columns[2], key_table=table, key_set=key_set)),
        lambda: requests.recover(pb.RecoverRequest(**fields, address_hash=scheme.hash)),
        lambda: requests.digest(pb.DigestRequest(items=items, hash=scheme.hash, input=columns[0], priority=priority)),
    )
    for call in calls:
        try:
            prepared = call()
        except RequestError:
            continue
        assert prepared.batch.items == items
        for column in prepared.batch.inputs:
            if column.offsets is None:
                assert column.data.size == items * column.stride
            else:
                assert column.offsets.size == items + 1
