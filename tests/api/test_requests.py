"""Requests to batches: every wrong field has its own error, and right ones become the right columns and keys."""

from __future__ import annotations

import pytest
from _request_builders import _column, _enum, _scheme, ecdsa, message, offsets, sm2, verify
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from verifier.errors import NotServedError, RequestError
from verifier.model import Batch
from verifier.scheduling import Priority
from verifier.schemes import DEFAULT_SM2_USER_ID, MAX_SM2_USER_ID_BYTES
from verifier.v1 import verifier_pb2 as pb

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
