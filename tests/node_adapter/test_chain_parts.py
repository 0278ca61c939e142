import random
from dataclasses import replace

import _sm2
import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature

from node_adapter.chain import (
    TRANSACTION_SCHEME,
    TRANSACTION_SCHEMES,
    Conditions,
    Network,
    P256Key,
    Point,
    Question,
    RememberedVerdicts,
    SigningKey,
    State,
    Transaction,
    by_library,
    make_pool,
)
from node_adapter.chain._faults import faults_of
from node_adapter.chain._keys import P256_N, N, P, public_key
from node_adapter.chain._mempool import Mempool
from node_adapter.chain._transaction import address, der
from node_adapter.client import Algorithm, InputKind, KeyEncoding, Scheme, SignatureEncoding
from node_adapter.errors import ChainError
from verifier.model import Code


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("pool")


@pytest.fixture(scope="module")
def pool(folder):
    return make_pool(5, 48, accounts=6, fault_share=1 / 3, folder=folder, processes=1)


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


def fate(entry, state, code):
    """What a node must find of an entry: its code, and then the rules."""
    return Code(code).name if code != Code.VALID else state.apply(entry.transaction)


def test_every_fault_is_rejected_for_its_reason(pool):
    assert {entry.fault for entry in pool.entries} == {None, *faults_of(Algorithm.SM2)}
    state = State(1, pool.balances)
    for entry in pool.entries:
        tx = entry.transaction
        code = _sm2.code(TRANSACTION_SCHEME, tx.signed, tx.signature, tx.key)
        assert fate(entry, state, code) == entry.reason, entry.fault


def test_every_fault_of_ecdsa_is_rejected(tmp_path):
    pool = make_pool(5, 200, algorithm=Algorithm.ECDSA_P256, fault_share=0.3, folder=tmp_path)
    assert {entry.fault for entry in pool.entries} == {None, *faults_of(Algorithm.ECDSA_P256)}
    scheme = TRANSACTION_SCHEMES[Algorithm.ECDSA_P256]
    codes = by_library(Question.transactions(Point.RECEIPT, scheme, [entry.transaction for entry in pool.entries]))
    state = State(1, pool.balances)
    for entry, code in zip(pool.entries, codes, strict=True):
        found = fate(entry, state, code)
        # OpenSSL does not say why it refuses numbers out of range and keys off the curve.
        assert found == entry.reason or (found == "INVALID" and entry.reason in {c.name for c in Code}), entry.fault
    assert make_pool(5, 200, algorithm=Algorithm.ECDSA_P256, fault_share=0.3, folder=tmp_path).signed == 0


def test_libraries_give_the_verdicts_of_integers(pool):
    transactions = [entry.transaction for entry in pool.entries][:20]
    codes = by_library(Question.transactions(Point.RECEIPT, TRANSACTION_SCHEME, transactions))
    expected = [_sm2.code(TRANSACTION_SCHEME, tx.signed, tx.signature, tx.key) for tx in transactions]
    assert [code == Code.VALID for code in codes] == [code == Code.VALID for code in expected]
    secp256k1 = Question(Point.RECEIPT, replace(TRANSACTION_SCHEME, algorithm=Algorithm.ECDSA_SECP256K1), [], [], [])
    with pytest.raises(ChainError, match="no library here verifies ECDSA_SECP256K1"):
        by_library(secp256k1)


def test_ecdsa_signatures_have_a_low_s():
    key = P256Key.derive(9, "account", 0)
    signatures = [key.sign(bytes([n])) for n in range(20)]
    assert all(int.from_bytes(signature[32:], "big") <= P256_N // 2 for signature in signatures)
    assert signatures == [P256Key.derive(9, "account", 0).sign(bytes([n])) for n in range(20)]


def test_the_second_pool_comes_from_the_cache(pool, folder):
    assert pool.signed == 48
    again = make_pool(5, 48, accounts=6, fault_share=1 / 3, folder=folder, processes=1)
    assert again.signed == 0
    assert again.entries == pool.entries


def test_a_spoilt_cache_is_made_again(pool, folder):
    (path,) = folder.glob("*.npy")
    np.save(path, np.zeros((3, 64), np.uint8))
    again = make_pool(5, 48, accounts=6, fault_share=1 / 3, folder=folder, processes=1)
    assert again.signed == 48
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
    assert len({tx.signed, *(other.signed for other in others)}) == 8
    assert replace(tx, signature=b"s").hash != tx.hash


def test_what_a_client_sends_is_read_back(pool):
    for entry in pool.entries:
        read = Transaction.decoded(entry.transaction.encoded())
        assert read == entry.transaction
        assert read.signed == replace(read).signed == entry.transaction.signed  # as read, and encoded anew


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda data: data[:100], "a transaction of 100 bytes: its head alone has 112"),
        (lambda data: b"VTX2" + data[4:], "begins with b'VTX2'"),
        (lambda data: data[:108] + b"\0\1\0\1" + data[112:], "a payload of 65537 bytes at byte 112: .* the limit is"),
        (lambda data: data[:108] + b"\0\0\xff\0" + data[112:], "a payload of 65280 bytes at byte 112"),
        (lambda data: data + bytes(300), r"a signature of \d+ bytes at byte \d+; the limit is 256"),
    ],
)
def test_what_is_no_transaction_is_refused_with_the_place(pool, spoil, message):
    with pytest.raises(ChainError, match=message):
        Transaction.decoded(spoil(pool.entries[0].transaction.encoded()))


def test_state_rules():
    key = b"k" * 64
    a, b = address(key), b"b" * 20
    state = State(1, {a: 10})
    before = state.root()
    assert state.apply(Transaction(1, 1, key, b, 1)) == "NONCE"
    assert state.apply(Transaction(1, 0, key, b, 11)) == "BALANCE"
    assert state.apply(Transaction(2, 0, key, b, 1)) == "CHAIN"
    assert state.apply(Transaction(1, 0, b"x" * 64, b, 1)) == "BALANCE"
    assert state.root() == before
    copy = state.copy()
    assert copy.apply(Transaction(1, 0, key, b, 4)) is None
    assert (copy.balances, copy.nonces) == ({a: 6, b: 4}, {a: 1})
    assert state.root() == before != copy.root()
    assert copy.refusal(Transaction(1, 0, key, b, 4)) == "NONCE"
    assert copy.apply_all([Transaction(1, 1, key, a, 6), Transaction(1, 3, key, a, 6)]) == "NONCE"
    assert copy.balances[a] == 6


def test_the_pool_chooses_what_can_follow():
    key = b"k" * 64
    state = State(1, {address(key): 10})
    pool = Mempool(limit=3)
    late, first, second = (Transaction(1, nonce, key, b"b" * 20, 1) for nonce in (5, 0, 1))
    assert pool.add(late)
    assert not pool.ready(state), "it waits for a nonce that nobody has sent"
    assert pool.add(first)
    assert pool.add(second)
    assert not pool.add(Transaction(1, 2, key, b"b" * 20, 1)), "it is full"
    assert pool.choose(state, 1)[0] == [first]
    chosen, after = pool.choose(state, 9)
    assert chosen == [first, second]
    assert after.nonces == {address(key): 2}
    pool.settle([first], State(1, state.balances, {address(key): 5}))
    assert second not in pool, "its nonce is used"
    assert late in pool


def test_verdicts_are_remembered_by_every_byte(pool):
    asked = []

    def verify(question):
        asked.append(len(question))
        return np.array([Code.VALID] * (len(question) - 1) + [Code.UNDECIDED], np.uint8)

    remembered = RememberedVerdicts(verify)
    question = Question.transactions(Point.RECEIPT, TRANSACTION_SCHEME, [e.transaction for e in pool.entries[:4]])
    assert remembered(question).tolist() == [1, 1, 1, 0]
    remembered(question)
    assert asked == [4, 1], "what was undecided is asked again, the rest is not"
    for column in ("inputs", "signatures", "keys"):
        changed = [value[:-1] + bytes([value[-1] ^ 1]) for value in getattr(question, column)]
        remembered(replace(question, **{column: changed}))
    remembered(replace(question, scheme=replace(TRANSACTION_SCHEME, sm2_user_id=b"")))
    assert asked == [4, 1, 4, 4, 4, 4]


def test_a_network_parts_and_loses():
    network = Network(Conditions(0.1, 0.2), random.Random(1))
    assert all(0.1 <= network.delay_s(0, 1) <= 0.2 for _ in range(50))
    network.part([(0, 1), (2, 3)])
    assert network.delay_s(0, 1)
    assert network.delay_s(0, 2) is None
    assert network.delay_s(4, 2), "whoever is in no group reaches everyone"
    network.heal()
    assert network.delay_s(0, 2)
    network.conditions = Conditions(0.1, 0.2, 0.5)
    arrived = sum(network.delay_s(0, 1) is not None for _ in range(1000))
    assert 400 < arrived < 600
    with pytest.raises(ChainError, match="they must rise from 0"):
        Conditions(2, 1)
    with pytest.raises(ChainError, match="a loss of 1"):
        Conditions(loss=1)
