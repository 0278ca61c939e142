from dataclasses import replace

import _sm2
import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature

from node_adapter.chain import FAULTS, TRANSACTION_SCHEME, SigningKey, State, Transaction, make_pool
from node_adapter.chain._keys import N, P, public_key
from node_adapter.chain._transaction import address, der
from node_adapter.chain._validator import quorum
from node_adapter.client import Algorithm, InputKind, KeyEncoding, Scheme, SignatureEncoding
from verifier.model import Code


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("pool")


@pytest.fixture(scope="module")
def pool(folder):
    return make_pool(5, 45, accounts=6, fault_share=1 / 3, folder=folder, processes=1)


def test_public_keys_are_multiples_of_the_generator():
    # GB/T 32918.5, annex A.2: the example key pair on the recommended curve.
    private = 0x3945208F7B2144B13F36E38AC6D39F95889393692860B51A42FB81EF4DF7C5B8
    assert public_key(private).hex() == (
        "09f9df311e5421a150dd7d161e4bc5c672179fad1833fc076bb08ff356f35020"
        "ccea490ce26775a52dc6ea718cc1aa600aed05fbf35e084a6632f6072da9ad13"
    )
    assert public_key(N - 1) == public_key(1)[:32] + (P - int.from_bytes(public_key(1)[32:], "big")).to_bytes(
        32, "big"
    )


def test_signatures_are_repeatable_and_good():
    key = SigningKey.derive(9, "account", 0)
    signature = key.sign(b"message")
    assert signature == SigningKey.derive(9, "account", 0).sign(b"message")
    scheme = Scheme(Algorithm.SM2, InputKind.MESSAGE, SignatureEncoding.RAW_RS, KeyEncoding.RAW_XY)
    assert _sm2.code(scheme, b"message", signature, key.public) == Code.VALID
    assert _sm2.code(scheme, b"messagf", signature, key.public) == Code.INVALID
    assert _sm2.code(replace(scheme, sm2_user_id=b""), b"message", signature, key.public) == Code.INVALID
    assert (
        _sm2.code(replace(scheme, sm2_user_id=b""), b"message", key.sign(b"message", b""), key.public) == Code.VALID
    )


def test_every_fault_is_rejected_for_its_reason(pool):
    assert {entry.fault for entry in pool.entries} == {None, *FAULTS}
    state = State(pool.balances)
    for entry in pool.entries:
        tx = entry.transaction
        code = _sm2.code(TRANSACTION_SCHEME, tx.body(), tx.signature, tx.key)
        reason = Code(code).name if code != Code.VALID else state.apply(tx)
        assert reason == entry.reason, entry.fault


def test_the_second_pool_comes_from_the_cache(pool, folder):
    assert pool.signed == 45
    again = make_pool(5, 45, accounts=6, fault_share=1 / 3, folder=folder, processes=1)
    assert again.signed == 0
    assert again.entries == pool.entries


def test_a_spoilt_cache_is_made_again(pool, folder):
    (path,) = folder.glob("*.npy")
    np.save(path, np.zeros((3, 64), np.uint8))
    again = make_pool(5, 45, accounts=6, fault_share=1 / 3, folder=folder, processes=1)
    assert again.signed == 45
    assert again.entries == pool.entries


def test_another_seed_gives_other_transactions(pool):
    other = make_pool(6, 2, accounts=2, fault_share=0, folder=None, processes=1)
    assert {e.transaction.key for e in other.entries}.isdisjoint({e.transaction.key for e in pool.entries})


def test_der_is_what_the_library_reads_back():
    signature = bytes(31) + b"\x80" + bytes(30) + b"\x01\x02"
    assert decode_dss_signature(der(signature)) == (0x80, 0x102)


def test_bodies_differ_wherever_a_field_differs():
    tx = Transaction(1, 2, b"k" * 64, b"r" * 20, 3, b"payload")
    others = [
        replace(tx, chain=9),
        replace(tx, nonce=9),
        replace(tx, key=b"l" * 64),
        replace(tx, recipient=b"s" * 20),
        replace(tx, amount=9),
        replace(tx, payload=b"payloae"),
        replace(tx, payload=b""),
    ]
    assert len({tx.body(), *(other.body() for other in others)}) == 8
    assert replace(tx, signature=b"s").hash != tx.hash


def test_state_rules():
    key = b"k" * 64
    a, b = address(key), b"b" * 20
    state = State({a: 10})
    before = state.root()
    assert state.apply(Transaction(1, 1, key, b, 1)) == "NONCE"
    assert state.apply(Transaction(1, 0, key, b, 11)) == "BALANCE"
    assert state.root() == before
    copy = state.copy()
    assert copy.apply(Transaction(1, 0, key, b, 4)) is None
    assert (copy.balances, copy.nonces) == ({a: 6, b: 4}, {a: 1})
    assert state.root() == before != copy.root()
    assert copy.apply(Transaction(1, 1, key, a, 6)) is None
    assert copy.balances[a] == 6


@pytest.mark.parametrize("members", range(4, 41))
def test_two_quorums_share_an_honest_member(members):
    faulty = (members - 1) // 3
    assert 2 * quorum(members) - members > faulty
    assert quorum(members) <= members - faulty
    if members % 3 == 1:
        assert quorum(members) == 2 * faulty + 1
