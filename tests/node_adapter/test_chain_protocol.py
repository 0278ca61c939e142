"""What a replica believes: membership, certificates, view changes, new views, and bytes from peers."""

import datetime
import random

import msgspec
import pytest
from _chain import members
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.x509.oid import NameOID

from node_adapter.chain import Block, Header, Membership, Transaction, issue_members
from node_adapter.chain._block import GENESIS, transactions_root
from node_adapter.chain._messages import (
    Commit,
    Message,
    NewView,
    Prepare,
    Prepared,
    PrePrepare,
    Status,
    ViewChange,
    decode,
    encode,
)
from node_adapter.chain._view_change import (
    certificate_holds,
    chosen,
    new_view_holds,
    pre_prepare_holds,
    prepared_holds,
    view_change_holds,
)
from node_adapter.errors import ChainError

replace = msgspec.structs.replace
IDS = members()
MEMBERS = IDS[0].membership
TX = Transaction(1, 0, b"k" * 64, b"r" * 20, 1, b"payload", b"signature")


def a_block(height=1, proposer=0, transactions=(TX,)):
    root = transactions_root(transactions)
    return Block(Header(1, height, GENESIS, proposer, root, b"s" * 32), transactions)


def pre_prepare(view=0, block=None, sender=None):
    block = block or a_block()
    sender = view % 4 if sender is None else sender
    return IDS[sender].sign(PrePrepare(view, block.height, block.hash, sender, block))


def prepared(view=0, block=None, backups=(1, 2)):
    proposal = pre_prepare(view, block)
    votes = (IDS[n].sign(Prepare(view, proposal.height, proposal.digest, n)) for n in backups)
    return Prepared(proposal, tuple(votes))


def commits(height, digest, view=0, senders=(0, 1, 2)):
    return tuple(IDS[n].sign(Commit(view, height, digest, n)) for n in senders)


def change(sender, view=1, height=0, digest=GENESIS, certificate=(), proof=None):
    return IDS[sender].sign(ViewChange(view, height, digest, certificate, proof, sender))


def new_view(changes, proposal=None, view=1, sender=None):
    sender = view % 4 if sender is None else sender
    return IDS[sender].sign(NewView(view, tuple(changes), proposal, sender))


@pytest.mark.parametrize("count", range(4, 41))
def test_two_quorums_share_an_honest_member(count):
    membership = object.__new__(Membership)
    membership.points = (b"",) * count
    faulty, quorum = membership.faulty, membership.quorum
    assert 2 * quorum - count > faulty
    assert quorum <= count - faulty
    if count % 3 == 1:
        assert quorum == 2 * faulty + 1


def test_too_few_members():
    with pytest.raises(ChainError, match="3 members cannot bear a faulty one; at least 4"):
        issue_members(1, 3)


def test_members_follow_from_the_seed():
    again, others = issue_members(7, 4), issue_members(8, 4)
    assert again[0].membership.certificates == MEMBERS.certificates
    assert others[0].membership.points[0] != MEMBERS.points[0]
    names = [certificate.subject.rfc4514_string() for certificate in MEMBERS.certificates]
    assert names[2] == "CN=member 2,O=chain 1"


def test_a_certificate_of_another_authority_is_refused():
    stranger = issue_members(8, 4)[0].membership.certificates[3]
    with pytest.raises(ChainError, match=r"CN=member 3,O=chain 1: not issued by CN=authority,O=chain 1"):
        Membership(1, MEMBERS.authority, (*MEMBERS.certificates[:3], stranger))


def test_a_member_with_another_kind_of_key_is_refused():
    root = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "odd")])

    def issued(key):
        start = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
        builder = x509.CertificateBuilder(name, name, key, 1, start, start + datetime.timedelta(days=1))
        return builder.sign(root, hashes.SHA256())

    authority = issued(root.public_key())
    for key in (ed25519.Ed25519PrivateKey.generate(), ec.generate_private_key(ec.SECP384R1())):
        with pytest.raises(ChainError, match="members sign with P-256"):
            Membership(1, authority, [issued(key.public_key())] * 4)


def test_a_signature_is_its_members_over_everything():
    vote = IDS[1].sign(Prepare(0, 1, b"d" * 32, 1))
    assert MEMBERS.signed(vote)
    others = [
        replace(vote, view=1),
        replace(vote, height=2),
        replace(vote, digest=b"e" * 32),
        replace(vote, replica=2),
    ]
    others += [replace(vote, replica=4), replace(vote, replica=-1), replace(vote, signature=b"")]
    assert not any(MEMBERS.signed(other) for other in others)
    assert not MEMBERS.signed(Commit(0, 1, b"d" * 32, 1, vote.signature)), "a prepare is no commit"
    other_chain = Membership(2, MEMBERS.authority, MEMBERS.certificates)
    assert not other_chain.signed(vote)


def test_a_pre_prepare_is_the_primarys_and_complete():
    good = pre_prepare()
    assert pre_prepare_holds(MEMBERS, good)
    fewer = Block(good.block.header, ())
    other = a_block(height=2)
    for bad in (
        pre_prepare(sender=1),
        replace(good, view=1),
        replace(good, block=fewer),
        replace(good, block=other),
        IDS[0].sign(replace(good, height=2)),
        replace(good, signature=b"x"),
    ):
        assert not pre_prepare_holds(MEMBERS, bad)


def test_a_prepared_certificate_needs_a_quorum_for_one_thing():
    good = prepared()
    assert prepared_holds(MEMBERS, good)
    first, second = good.prepares
    for bad in (
        prepared(backups=(1,)),
        prepared(backups=(0, 1)),
        prepared(backups=(1, 1)),
        replace(good, prepares=(first, IDS[2].sign(replace(second, digest=b"x" * 32)))),
        replace(good, prepares=(first, IDS[2].sign(replace(second, view=1)))),
        replace(good, prepares=(first, replace(second, signature=first.signature))),
        replace(good, pre_prepare=replace(good.pre_prepare, signature=b"x")),
    ):
        assert not prepared_holds(MEMBERS, bad)


def test_a_commit_certificate_needs_a_quorum_of_one_view():
    digest = b"d" * 32
    assert certificate_holds(MEMBERS, 3, digest, commits(3, digest))
    assert certificate_holds(MEMBERS, 0, GENESIS, ())
    assert not certificate_holds(MEMBERS, 0, digest, ())
    mixed = (*commits(3, digest, senders=(0, 1)), *commits(3, digest, view=1, senders=(2,)))
    for bad in (commits(3, digest, senders=(0, 1)), commits(3, b"e" * 32), commits(4, digest), mixed, ()):
        assert not certificate_holds(MEMBERS, 3, digest, bad)


def test_a_view_change_proves_what_it_says():
    last = a_block(1)
    proof = prepared(0, a_block(2))
    good = change(3, 1, 1, last.hash, commits(1, last.hash), proof)
    assert view_change_holds(MEMBERS, good)
    assert view_change_holds(MEMBERS, change(3))
    for bad in (
        change(3, 1, 1, last.hash, ()),
        change(3, 1, 1, last.hash, commits(1, last.hash), prepared(0, a_block(3))),
        change(3, 1, 1, last.hash, commits(1, last.hash), prepared(1, a_block(2), backups=(2, 3))),
        change(3, 1, 1, last.hash, commits(1, last.hash), prepared(0, a_block(2), backups=(1,))),
        replace(good, replica=2),
    ):
        assert not view_change_holds(MEMBERS, bad)


def test_a_new_view_goes_on_from_the_highest_proof():
    one, other = a_block(1, proposer=0), a_block(1, proposer=1)
    changes = [change(0, 2, proof=prepared(0, one)), change(1, 2, proof=prepared(1, other, backups=(2, 3)))]
    assert chosen(changes) == (0, changes[1].prepared)
    ahead = change(3, 2, 1, one.hash, commits(1, one.hash))
    assert chosen([*changes, ahead]) == (1, None), "what was prepared at a height that is settled does not matter"


def test_a_new_view_must_follow_from_its_view_changes():
    block = a_block()
    changes = [change(0, proof=prepared(0, block)), change(1), change(2)]
    again = pre_prepare(1, block)
    assert new_view_holds(MEMBERS, new_view(changes, again))
    assert new_view_holds(MEMBERS, new_view([change(0), change(1), change(2)]))
    for bad in (
        new_view(changes),
        new_view(changes, pre_prepare(1, a_block(proposer=1))),
        new_view(changes, pre_prepare(0, block)),
        new_view(changes, pre_prepare(1, block, sender=2)),
        new_view([*changes[1:], change(1)], None),
        new_view(changes[1:], None),
        new_view([*changes[:2], change(2, view=2)], again),
        new_view([*changes[:2], replace(change(2), replica=3)], again),
        new_view(changes, again, sender=2),
        new_view([change(0), change(1), change(2)], again),
        replace(new_view(changes, again), signature=b"x"),
    ):
        assert not new_view_holds(MEMBERS, bad)


EVERYTHING = [
    pre_prepare(),
    change(3, 1, 1, a_block().hash, commits(1, a_block().hash), prepared(0, a_block(2))),
    new_view([change(0), change(1), change(2)]),
    Status(3, 4, True),
    *commits(1, b"d" * 32),
]


@pytest.mark.parametrize("message", EVERYTHING, ids=lambda message: type(message).__name__)
def test_messages_survive_the_wire(message):
    assert decode(encode(message), Message) == message


def test_what_is_no_message_is_refused():
    rng = random.Random(11)
    data = encode(EVERYTHING[1])
    refused = 0
    for _ in range(300):
        at = rng.randrange(len(data))
        spoilt = data[:at] + bytes([data[at] ^ 1 << rng.randrange(8)]) + data[at + 1 :]
        try:
            assert decode(spoilt, Message) != EVERYTHING[1]
        except ChainError:
            refused += 1
    assert refused > 30
    for bad in (b"", data[:-1], data + b"\0", b"\xc0", encode(Prepared(pre_prepare(), ()))):
        with pytest.raises(ChainError, match="cannot be read"):
            decode(bad, Message)
    short = Block(Header(1, 1, b"", 0, b"", b""), (Transaction(1, 0, b"k", b"r", 1),))
    with pytest.raises(ChainError, match="cannot be read"):
        decode(encode(PrePrepare(0, 1, b"", 0, short)), Message)
