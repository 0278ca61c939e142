"""A bit of what real systems signed, changed: exactly the verdicts that depend on it change, and no change passes."""

from __future__ import annotations

import random

import _ecdsa
import _sm2
import pytest
from gmssl import func, sm3

from node_adapter.client import Algorithm, MockVerifier, VerifierClient
from node_adapter.errors import FormatError
from node_adapter.formats import bitcoin, ethereum, fabric, settle, verify_signed, x509
from node_adapter.formats._bitcoin import Reader, Transaction, compact, merkle_root, read_header
from node_adapter.formats._protobuf import varint
from node_adapter.formats._rlp import read as read_rlp
from node_adapter.formats.fabric import _stored
from verifier.model import Code


@pytest.fixture(scope="module")
def client():
    def verify(items):
        return (_sm2 if items.scheme.algorithm is Algorithm.SM2 else _ecdsa).verify(items)

    with MockVerifier(verify, recover=_ecdsa.recover) as daemon, VerifierClient(daemon.target) as client:
        yield client


def read(records, data):
    """What is asked about each signature, its possible keys together; and what is said of a file besides."""
    groups, said = {}, []
    try:
        for record in records(data):
            for item in record.signed:
                groups.setdefault(item.where, []).append(item)
            said += [(item.where, item.why) for item in (*record.unverifiable, *record.unsigned)]
    except FormatError as error:
        said.append(("file", str(error)))
    return groups, said


def asked(group):
    """A group without its place in the file."""
    return tuple((item.scheme, item.input, item.signature, item.key) for item in group)


def found(client, group):
    """The verdict, and the signer where there is one."""
    (verdict,) = settle(group, verify_signed(client, group))
    return verdict.code, verdict.address


def flips(client, records, data, bits):
    """For each bit: whether a verdict or what is said changed. Asserts that nothing changed is valid as before."""
    before, said_before = read(records, data)
    verdicts = {asked(group): found(client, group) for group in before.values()}
    assert {code for code, _ in verdicts.values()} == {Code.VALID}
    for bit in bits:
        spoilt = bytearray(data)
        spoilt[bit // 8] ^= 1 << bit % 8
        after, said = read(records, bytes(spoilt))
        changed = [group for group in after.values() if asked(group) not in verdicts]
        for group in changed:
            code, signer = found(client, group)
            right = code is Code.VALID and (signer is None or (Code.VALID, signer) in verdicts.values())
            assert not right, f"bit {bit}: {group[0].where} is valid although what it signs was changed"
        lost = len(before) - (len(after) - len(changed))
        yield bit, bool(changed or lost or said != said_before)


def all_noticed(client, records, data, regions, count, seed):
    """Flips `count` random bits in each region (start, stop) of bytes; every one must be noticed."""
    rng = random.Random(seed)
    bits = [rng.randrange(8 * start, 8 * stop) for start, stop in regions for _ in range(count)]
    missed = [bit for bit, noticed in flips(client, records, data, bits) if not noticed]
    assert not missed, f"seed {seed}: nothing changed with these bits: {missed}"


def ethereum_blocks(data):
    """Each block with transactions, and where these are in it."""
    at = 0
    while at < len(data):
        block = read_rlp(data, at)
        transactions = block.children()[1]
        if transactions.stop > transactions.start:
            yield data[at : block.stop], (transactions.start - at, transactions.stop - at)
        at = block.stop


@pytest.mark.parametrize(("name", "seed"), [("ethereum-chain.rlp", 21), ("ethereum-blockchain.blocks", 22)])
def test_ethereum(shared, client, name, seed):
    blocks = list(ethereum_blocks((shared / "real" / name).read_bytes()))
    chosen = random.Random(seed).sample(blocks, 25)
    # One of every type: the last blocks have the newest ones.
    for block, region in chosen + blocks[-6:]:
        all_noticed(client, ethereum.records, block, [region], 6, seed)


def fabric_blocks(data):
    at = 0
    while at < len(data):
        length, start = varint(data, at, len(data))
        block = _stored(data, start, start + length)
        spans = [*block.envelopes, *block.metadata[:1], block.data_hash, block.previous_hash]
        yield data[at : start + length], [(s.start - at, s.stop - at) for s in spans if s]
        at = start + length


def test_fabric(shared, client):
    data = (shared / "real" / "fabric-v2.0-ledger.blockfile").read_bytes()
    blocks = list(fabric_blocks(data))
    assert len(blocks) == 20
    for block, regions in blocks:
        # A genesis block is signed by no orderer: nobody signs its header.
        all_noticed(client, fabric.records, block, regions, 5, 23)


def bitcoin_pieces(data, seed, pieces, transactions):
    """Small blocks of real transactions, with the Merkle root of what is in them."""
    reader = Reader(data)
    header, count = read_header(reader)
    spans = []
    for _ in range(count):
        start = reader.at
        transaction = Transaction.read(reader)
        spans.append((start, reader.at, transaction))
    rng = random.Random(seed)
    usable = [(d, e, t) for d, e, t in spans[1:] if e - d < 3000]
    for _ in range(pieces):
        chosen = rng.sample(usable, transactions)
        root = merkle_root([transaction.id for _, _, transaction in chosen])
        head = header[:36] + root + header[68:] + compact(transactions)
        yield head + b"".join(data[start:stop] for start, stop, _ in chosen), len(head)


def test_bitcoin(shared, client):
    data = (shared / "real" / "bitcoin-block-413567.raw").read_bytes()
    for block, start in bitcoin_pieces(data, 24, pieces=12, transactions=8):
        all_noticed(client, bitcoin.records, block, [(36, 68), (start, len(block))], 12, 24)


@pytest.mark.long
def test_the_whole_bitcoin_block(shared, client):
    data = (shared / "real" / "bitcoin-block-413567.raw").read_bytes()
    before, said = read(bitcoin.records, data)
    rng = random.Random(25)
    for _ in range(40):
        bit = rng.randrange(8 * 81, 8 * len(data))
        spoilt = bytearray(data)
        spoilt[bit // 8] ^= 1 << bit % 8
        after, said_after = read(bitcoin.records, bytes(spoilt))
        questions = {asked(group) for group in before.values()}
        changed = [group for group in after.values() if asked(group) not in questions]
        assert not any(found(client, group)[0] is Code.VALID for group in changed), f"seed 25, bit {bit}"
        assert said_after != said, f"seed 25, bit {bit}: the Merkle root says nothing"


RELATIONS = [
    # issuer's file and place in it, subject's
    ("sm_ca.crt", 0, "sm_ca.crt", 0),
    ("sm_ca.crt", 0, "sm_node.crt", 1),
    ("sm_node.crt", 1, "sm_node.crt", 0),
    ("sm_node.crt", 1, "sm_ennode.crt", 0),
    ("sm2-root-cert.pem", 0, "sm2-cert.pem", 0),
    ("sm2-chain-ca.crt", 1, "sm2-chain-ca.crt", 0),
    ("sm2-chain-ca.crt", 0, "sm2-leaf.crt", 0),
    ("sm2-noza-root-cert.pem", 0, "sm2-noza-cert.pem", 0),
]


def signed_by(client, issuer, subject, za):
    """Whether one certificate signed the other, None where that cannot be asked."""
    digest = None if za else bytes.fromhex(sm3.sm3_hash(func.bytes_to_list(subject.tbs)))
    question = x509.question(issuer, subject, digest=digest)
    return found(client, [question])[0] is Code.VALID if isinstance(question, x509.Signed) else None


@pytest.mark.parametrize("relation", RELATIONS, ids=lambda r: f"{r[0]}-{r[2]}")
def test_certificates(shared, client, relation):
    """Any bit of a certificate, changed, and its issuer did not sign it, or it is none any more."""
    folder = shared / "real" / "sm2-certs"
    issuer, subject = (
        x509.load((folder / name).read_bytes(), name)[place] for name, place in (relation[:2], relation[2:])
    )
    za = "noza" not in relation[0]
    assert signed_by(client, issuer, subject, za)
    rng = random.Random(26)
    for _ in range(25):
        bit = rng.randrange(8 * len(subject.der))
        spoilt = bytearray(subject.der)
        spoilt[bit // 8] ^= 1 << bit % 8
        try:
            (changed,) = x509.load(bytes(spoilt), "changed")
        except FormatError:
            continue
        assert not signed_by(client, issuer, changed, za), f"seed 26, bit {bit}"
