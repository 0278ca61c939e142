"""The digest of a request's columns: what it is over, and that the daemon and the client say the same."""

from __future__ import annotations

import numpy as np
import pytest
import xxhash
from _request_builders import offsets, sm2, verify

from node_adapter.client import Algorithm, InputKind, KeyEncoding, Priority, Scheme, SignatureEncoding
from node_adapter.client._jobs import Chunk, verify_job
from verifier.api._lift import KINDS, RequestDigest, lift, request_digest
from verifier.columns_digest import columns_digest
from verifier.v1 import verifier_pb2 as pb


def test_it_is_xxh3_over_lengths_and_parts():
    told = (3).to_bytes(8, "little") + b"abc" + bytes(8) + (1).to_bytes(8, "little") + b"d"
    assert columns_digest(b"abc", b"", memoryview(b"d")) == xxhash.xxh3_64_digest(told)


def test_bytes_that_move_to_another_column_change_it():
    assert len({columns_digest(*parts) for parts in ((b"ab", b"c"), (b"a", b"bc"), (b"abc", b""), (b"abc",))}) == 4


CHANGES = {
    "input": {"input": pb.Column(data=b"\1" + bytes(63))},
    "signature": {"signature": pb.Column(data=b"\1" + bytes(127))},
    "key": {"key": pb.Column(data=b"\1" + bytes(127))},
    "offsets": {"key": pb.Column(data=bytes(128), offsets=offsets(0, 64, 128))},
}


@pytest.mark.parametrize("name", CHANGES)
def test_every_column_counts(name):
    plain = request_digest(KINDS["Verify"], verify())
    assert len(plain) == 8
    assert request_digest(KINDS["Verify"], verify(**CHANGES[name])) != plain


def test_the_key_table_counts():
    indexed = {"scheme": sm2(key_encoding=pb.KEY_ENCODING_INDEX), "key": pb.Column(data=bytes(8))}
    told = {
        request_digest(KINDS["Verify"], verify(**indexed, key_table=table))
        for table in (bytes(64), b"\1" + bytes(63))
    }
    assert len(told) == 2


def test_it_is_taken_once():
    request = verify()
    digest, expected = RequestDigest(KINDS["Verify"], request), request_digest(KINDS["Verify"], request)
    assert digest.take() == expected
    request.input.data = b""
    assert digest.take() == expected


def test_recovery_and_hashing_have_it():
    recover = pb.RecoverRequest(
        items=1,
        scheme=pb.Scheme(
            algorithm=pb.ALGORITHM_ECDSA_SECP256K1,
            input_kind=pb.INPUT_KIND_DIGEST,
            signature_encoding=pb.SIGNATURE_ENCODING_RAW_RSV,
        ),
        input=pb.Column(data=bytes(32)),
        signature=pb.Column(data=bytes(65)),
    )
    assert request_digest(KINDS["Recover"], recover) == columns_digest(bytes(32), b"", bytes(65), b"")
    hashing = pb.DigestRequest(items=1, hash=pb.HASH_SM3, input=pb.Column(data=b"abc", offsets=offsets(0, 3)))
    assert request_digest(KINDS["Digest"], hashing) == columns_digest(b"abc", offsets(0, 3))


def test_the_client_says_the_same_of_what_it_sends():
    rng = np.random.default_rng(3)
    scheme = Scheme(Algorithm.SM2, InputKind.MESSAGE, SignatureEncoding.RAW_RS, KeyEncoding.RAW_XY)
    messages = [rng.bytes(int(size)) for size in rng.integers(0, 50, 9)]
    job = verify_job(
        scheme, messages, rng.bytes(64 * 9), rng.bytes(64 * 9), priority=Priority.POOL, deduplicate=False
    )
    for chunk in (Chunk(0, 9), Chunk(2, 5)):
        sent = job.request(chunk, 1)
        for read in (pb.VerifyRequest.FromString(sent.request), lift(KINDS["Verify"], sent.request)):
            assert request_digest(KINDS["Verify"], read) == sent.columns_digest
