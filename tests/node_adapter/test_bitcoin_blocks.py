"""Files with blocks of Bitcoin: how they are read, what is broken, and the outputs that they spend."""

import random

import pytest
from _bitcoin_blocks import KEYS, PUBLIC, block, push, to_hash, transaction, verdicts, with_script

from node_adapter.client import SignatureEncoding
from node_adapter.errors import FormatError
from node_adapter.formats import settle, verify_signed
from node_adapter.formats._bitcoin import Input, Output, Transaction, double_sha256, merkle_root
from node_adapter.formats.bitcoin import read_spent, records
from verifier.model import Code


def test_a_nodes_own_file_holds_many_blocks(client):
    tx = with_script(transaction(), [push(b"\x30sig\1", PUBLIC[0])])
    one, two = block(tx), block()
    magic = bytes.fromhex("f9beb4d9")
    data = b"".join(magic + len(b).to_bytes(4, "little") + b for b in (one, two)) + bytes(100)
    found = list(records(data))
    assert [record.name.split(" transaction")[0] for record in found] == ["block 0", "block 0", "block 1"]
    with pytest.raises(FormatError, match="a block begins with the magic") as caught:
        list(records(data[:-100] + b"rubbish!"))
    assert caught.value.offset == len(data) - 100
    with pytest.raises(FormatError, match="a block of 4294967295 bytes, but") as caught:
        list(records(data[:-100] + magic + b"\xff" * 4))
    assert caught.value.offset == len(data) - 96
    with pytest.raises(FormatError, match="1 bytes behind the block"):
        list(records(magic + (len(two) + 1).to_bytes(4, "little") + two + b"!"))


def test_outputs_are_handed_on_from_file_to_file(client):
    first = transaction()
    first.outputs[0] = Output(33, push(PUBLIC[0]) + b"\xac")
    second = Transaction(b"\1\0\0\0", [Input(first.id, 0, b"", bytes(4))], [Output(1, b"")], [[]], bytes(4))
    signature = KEYS[0].sign(second.legacy_digest(0, first.outputs[0].script, 1), hasher=None) + b"\1"
    coins = {}
    list(records(block(first), spent=coins))
    assert verdicts(client, block(with_script(second, [push(signature)])), spent=coins) == ([Code.VALID], [])


def test_old_blocks_are_read_laxly():
    tx = with_script(transaction(), [push(b"\x30sig\1", PUBLIC[0])])
    for time, encoding in ((1_400_000_000, SignatureEncoding.DER_LAX), (1_500_000_000, SignatureEncoding.DER_STRICT)):
        found = list(records(block(tx, time=time)))
        assert found[1].signed[0].scheme.signature_encoding is encoding


def test_a_block_with_other_transactions_than_were_mined(client):
    codes, why = verdicts(client, block(root=bytes(32)))
    assert codes == []
    assert "Merkle root mismatch" in why[0]
    assert bytes(32).hex() in why[0]


def test_merkle_roots():
    # Main-net block 100,000.
    names = [
        bytes.fromhex(name)[::-1]
        for name in (
            "8c14f0db3df150123e6f3dbbf30f8b955a8249b62ac1d1ff16284aefa3d06d87",
            "fff2525b8931402dd09222c50775608f75787bd2b87e56995a7bdd30f79702c4",
            "6359f0868171b1d194cbee1af2f16ea598ae8fad666d9b012c8ed2b79a236ec4",
            "e9a66845e05d5abc0ad04ec80f774a7e585c6e8db975962d069a522137b80c1d",
        )
    ]
    assert merkle_root(names)[::-1].hex() == "f3e94742aca4b5ef85488dc37c06c3282295ffec960994b2c0d5ac2a25a95766"
    pair = double_sha256(names[0] + names[1])
    assert merkle_root(names[:3]) == double_sha256(pair + double_sha256(names[2] + names[2]))
    assert merkle_root(names[:1]) == names[0]


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda d: d[:79], "block header of 80 bytes, but 79"),
        (lambda d: d + b"!", "1 bytes behind the block"),
        (lambda d: d[:-1], "lock time of 4 bytes, but 3"),
        (lambda d: d[:80] + b"\xfd\2\0" + d[81:], "not minimal"),
        (lambda d: d[:80] + b"\xff" + b"\xff" * 8, "are left"),
    ],
)
def test_broken_blocks(change, text):
    data = block(with_script(transaction(), [push(b"\x30sig\1", PUBLIC[0])]))
    with pytest.raises(FormatError, match=text):
        list(records(change(data)))


def test_what_came_before_a_cut_stays():
    data = block(*(with_script(transaction(), [push(b"\x30sig\1", PUBLIC[0])]) for _ in range(3)))
    found = records(data[:-10])
    assert [len(next(found).signed) for _ in range(3)] == [0, 1, 1]
    with pytest.raises(FormatError):
        next(found)


def test_spent_outputs_from_text():
    coins = read_spent(f"{bytes(range(32)).hex()}:3 77 5151\n\n")
    assert coins == {(bytes(range(32))[::-1], 3): Output(77, b"\x51\x51")}
    with pytest.raises(FormatError, match="txid:index") as caught:
        read_spent(f"{bytes(32).hex()}:3 77 5151\nnothing\n")
    assert caught.value.offset == 75


def test_spent_outputs_as_a_node_prints_them():
    name = bytes(range(32))
    prevout = '{"value": 0.00000077, "scriptPubKey": {"hex": "5151"}}'
    vin = f'[{{"coinbase": "00"}}, {{"txid": "{name.hex()}", "vout": 3, "prevout": {prevout}}}]'
    assert read_spent(f'{{"tx": [{{"vin": {vin}}}]}}') == {(name[::-1], 3): Output(77, b"\x51\x51")}
    for text, why in (
        ('{"tx": [', "not JSON"),
        (f'{{"tx": [{{"vin": [{{"txid": "{name.hex()}", "vout": 3}}]}}]}}', "no block with its prevouts: KeyError"),
        (f'{{"tx": [{{"vin": {vin.replace("0.00000077", "0.000000077")}}}]}}', "no amount of bitcoin"),
    ):
        with pytest.raises(FormatError, match=why):
            read_spent(text)


def test_the_real_block(shared, client):
    data = (shared / "real" / "bitcoin-block-413567.raw").read_bytes()
    found = list(records(data))
    assert sum(record.transactions for record in found) == 1557
    signed = [item for record in found for item in record.signed]
    settled = settle(signed, verify_signed(client, signed))
    assert len(settled) == 5815
    # One signature of the file is not valid, and the file says why: it is not the block that was mined.
    assert [v.where.split()[1:] for v in settled if v.code is not Code.VALID] == [
        ["513", "5c2830d2178a94769b91beff5eb482c069a620cd7feb038aae0c7aea48734a90", "input", "44"]
    ]
    assert [item.where for record in found for item in record.unverifiable] == ["block header"]


def test_a_flipped_bit_changes_exactly_the_verdicts_that_depend_on_it(client):
    txs = []
    for number in range(3):
        tx = transaction(2)
        scripts = [
            push(KEYS[n].sign(tx.legacy_digest(n, to_hash(PUBLIC[n]), kind), hasher=None) + bytes([kind]), PUBLIC[n])
            for n, kind in ((0, 1), (1, (1, 0x81, 3)[number]))
        ]
        txs.append(with_script(tx, scripts))
    data = block(*txs)
    good = [item for record in records(data) for item in record.signed]
    rng = random.Random(13)
    changed = kept = 0
    for _ in range(200):
        bit = rng.randrange(8 * 81, 8 * len(data))
        spoilt = bytearray(data)
        spoilt[bit // 8] ^= 1 << bit % 8
        items = []
        try:
            for record in records(bytes(spoilt)):
                items += record.signed
        except FormatError:
            pass
        if not items:
            continue
        for item, code in zip(items, verify_signed(client, items).codes, strict=True):
            same = any((item.input, item.signature, item.key) == (g.input, g.signature, g.key) for g in good)
            assert same == (code == Code.VALID), f"bit {bit}, {item.where}"
            changed += not same
            kept += same
    assert changed
    assert kept
