"""Scripts of Bitcoin: their operations, and those that check signatures in ways of their own."""

import hashlib

import pytest
from _bitcoin_blocks import KEYS, PUBLIC, SPENT, block, push, signed_with, transaction, verdicts, with_script

from node_adapter.formats._bitcoin import Output, double_sha256, pushes
from node_adapter.formats._interpreter import run
from node_adapter.formats._machine import Context
from node_adapter.formats._script import hash160, without
from node_adapter.formats.bitcoin import records
from verifier.model import Code


def test_scripts_of_any_other_kind(client):
    digest = hashlib.sha256(b"secret").digest()
    lock = b"\x63\xa8" + push(digest) + b"\x88" + push(PUBLIC[0]) + b"\x67\0\xb1\x75" + push(PUBLIC[1]) + b"\x68\xac"
    for key, shape in ((0, lambda s: push(s, b"secret") + b"\x51"), (1, lambda s: push(s) + b"\0")):
        data, spent = signed_with(lock, shape, key=key)
        assert verdicts(client, data, spent=spent) == ([Code.VALID], [])
        data, spent = signed_with(lock, shape, key=1 - key)
        assert verdicts(client, data, spent=spent) == ([Code.INVALID], [])


def test_several_checks_of_one_script_are_named():
    lock = push(PUBLIC[0]) + b"\xad" + push(PUBLIC[1]) + b"\xac"
    data, spent = signed_with(lock, lambda s: push(s, s))
    record = list(records(data, spent=spent))[1]
    assert [item.where.split(" input ")[1] for item in record.signed] == ["0 check 0", "0 check 1"]


def test_a_separator_of_an_old_script(client):
    lock = push(PUBLIC[0]) + b"\xad\xab" + push(PUBLIC[1]) + b"\xac"
    tx = transaction()
    behind = lock[lock.index(b"\xad\xab") + 2 :]
    first = KEYS[0].sign(tx.legacy_digest(0, lock, 1), hasher=None) + b"\1"
    second = KEYS[1].sign(tx.legacy_digest(0, behind, 1), hasher=None) + b"\1"
    assert tx.legacy_digest(0, lock, 1) == tx.legacy_digest(0, lock.replace(b"\xad\xab", b"\xad"), 1)
    data = block(with_script(tx, [push(second, first)]))
    assert verdicts(client, data, spent={(SPENT, 0): Output(7, lock)}) == ([Code.VALID] * 2, [])


def test_what_is_left_of_a_script():
    signature = b"\x30" * 71
    script = push(signature, b"key") + b"\xac"
    assert without(script, push(signature)) == push(b"key") + b"\xac"
    assert without(push(b"\xab") + b"\xab\xab\xac", b"\xab") == push(b"\xab") + b"\xac"
    assert without(b"\xab\x05ab", b"\xab") == b"\x05ab"
    assert without(script, b"") == script


@pytest.mark.parametrize(
    ("script", "left"),
    [
        (b"\x51\x52\x6d", []),
        (b"\x51\x52\x6e", [b"\1", b"\2", b"\1", b"\2"]),
        (b"\x51\x52\x53\x6f", [b"\1", b"\2", b"\3"] * 2),
        (b"\x51\x52\x53\x54\x70", [b"\1", b"\2", b"\3", b"\4", b"\1", b"\2"]),
        (b"\x51\x52\x53\x54\x55\x56\x71", [b"\3", b"\4", b"\5", b"\6", b"\1", b"\2"]),
        (b"\x51\x52\x53\x54\x72", [b"\3", b"\4", b"\1", b"\2"]),
        (b"\x51\x6b\x52\x6c\x73\0\x73", [b"\2", b"\1", b"\1", b""]),
        (b"\x51\x52\x77\x74", [b"\2", b"\1"]),
        (b"\x51\x52\x78\x7b", [b"\2", b"\1", b"\1"]),
        (b"\x51\x52\x53\x7c\x7d", [b"\1", b"\2", b"\3", b"\2"]),
        (b"\x51\x52\x53\x52\x79", [b"\1", b"\2", b"\3", b"\1"]),
        (b"\x51\x52\x53\x52\x7a", [b"\2", b"\3", b"\1"]),
        (b"\x4f\x90\x8f\x8c", [b"\x82"]),
        (b"\x60\x82", [b"\x10", b"\1"]),
        (b"\x02\xff\0\x8b", [b"\0\1"]),
        (b"\x51\x52\x94\x91\x92", [b""]),
        (b"\x51\0\x9a\x51\0\x9b", [b"", b"\1"]),
        (b"\x51\x52\x9f\x51\x52\xa0\x51\x51\xa1\x51\x52\xa2\x9e", [b"\1", b"", b"\1"]),
        (b"\x51\x52\xa3\x51\x52\xa4", [b"\1", b"\2"]),
        (b"\x51\x51\x52\xa5\x52\x51\x52\xa5", [b"\1", b""]),
        (b"\x51\x51\x9d\0\x64\x52\x67\x53\x68", [b"\2"]),
        (b"\0\x63\x63\x51\x67\x52\x68\x67\x53\x68", [b"\3"]),
        (b"\x51\xa7\x82", [hashlib.sha1(b"\1").digest(), b"\x14"]),
        (b"\x51\xaa", [double_sha256(b"\1")]),
        (b"\x51\xa9", [hash160(b"\1")]),
    ],
)
def test_operations_of_scripts(script, left):
    stack = []
    assert run(script, stack, Context()) == []
    assert stack == left


def test_pushes():
    assert pushes(b"\0\x51\x60\x02ab\x4c\x01c\x4d\x01\0d\x4e\x01\0\0\0e") == [
        b"",
        b"\1",
        b"\x10",
        b"ab",
        b"c",
        b"d",
        b"e",
    ]
    assert pushes(b"\x02a") is None
    assert pushes(b"\x76") is None
