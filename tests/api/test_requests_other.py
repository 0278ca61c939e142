"""Keys by index, recovery and digests: requests beside the plain batch."""

from __future__ import annotations

import numpy as np
import pytest
from _request_builders import ecdsa, offsets, sm2, verify

from verifier.errors import CapacityError, NotFoundError, RequestError
from verifier.model import BatchResult, Code
from verifier.v1 import verifier_pb2 as pb


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
        key = prepared.batch.gathered().inputs[2]
        np.testing.assert_array_equal(key.data.reshape(4, 64), self.TABLE[[4, 0, 0, 3]])
        assert pb.KEY_ENCODING_RAW_XY in prepared.batch.key.parameters
        assert prepared.refused.size == 0

    def test_bad_indices_are_the_items_own_problem(self, requests):
        prepared = requests.verify(self.request([4, 5, 0, 2**32 - 1]))
        assert prepared.refused.tolist() == [1, 3]
        key = prepared.batch.gathered().inputs[2]
        np.testing.assert_array_equal(key.data.reshape(4, 64)[[0, 2]], self.TABLE[[4, 0]])

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
        np.testing.assert_array_equal(prepared.batch.gathered().inputs[2].data.reshape(3, 33)[[0, 2]], rows[[2, 1]])
        assert prepared.refused.tolist() == [1]
        assert pb.KEY_ENCODING_SEC1_COMPRESSED in prepared.batch.key.parameters

    def test_keys_of_any_width(self, requests, key_sets):
        column = pb.Column(data=b"aabbbc", offsets=offsets(0, 2, 5, 6))
        keys, _ = self.register(requests, key_sets, column, pb.KEY_ENCODING_SPKI)
        prepared = self.use(requests, key_sets.add(keys), [1, 1, 2, 0, 5])
        column = prepared.batch.gathered().inputs[2]
        assert column.data.tobytes() == b"bbbbbbcaaaa"
        assert column.offsets.tolist() == [0, 3, 6, 7, 9, 11]
        assert prepared.refused.tolist() == [4]

    def test_keys_in_a_region_are_refused(self, requests, key_sets):
        shared = pb.Column(shared_data=pb.SharedBytes(region=1, bytes=192))
        with pytest.raises(RequestError, match=r"^keys\.shared_data: not taken by this call"):
            self.register(requests, key_sets, shared)

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
