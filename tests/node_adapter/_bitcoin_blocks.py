"""Blocks of Bitcoin made for a test: what is spent, by which scripts, signed with known keys."""

from coincurve import PrivateKey

from node_adapter.formats import settle, verify_signed
from node_adapter.formats._bitcoin import Input, Output, Transaction, compact, double_sha256, merkle_root
from node_adapter.formats._script import hash160
from node_adapter.formats.bitcoin import records

KEYS = [PrivateKey(bytes(31) + bytes([n])) for n in range(1, 5)]
PUBLIC = [key.public_key.format() for key in KEYS]
SPENT = b"p" * 32


def push(*values):
    return b"".join((b"\x4c" if len(v) > 75 else b"") + bytes([len(v)]) + v for v in values)


def to_hash(key):
    return b"\x76\xa9\x14" + hash160(key) + b"\x88\xac"


def to_script_hash(script):
    return b"\xa9\x14" + hash160(script) + b"\x87"


def multisig(wanted, keys):
    return bytes([0x50 + wanted]) + push(*keys) + bytes([0x50 + len(keys), 0xAE])


def transaction(count=1, outputs=2):
    inputs = [Input(SPENT, number, b"", b"\xfe\xff\xff\xff") for number in range(count)]
    return Transaction(
        b"\2\0\0\0", inputs, [Output(5000 + n, b"\x51") for n in range(outputs)], [[]] * count, bytes(4)
    )


def with_script(tx, scripts, witnesses=None):
    inputs = [Input(i.previous, i.index, script, i.sequence) for i, script in zip(tx.inputs, scripts, strict=True)]
    return Transaction(tx.version, inputs, tx.outputs, witnesses or [[]] * len(inputs), tx.lock_time)


def serialised(tx):
    inputs = b"".join(i.outpoint + compact(len(i.script)) + i.script + i.sequence for i in tx.inputs)
    outputs = b"".join(o.serialised() for o in tx.outputs)
    body = compact(len(tx.inputs)) + inputs + compact(len(tx.outputs)) + outputs
    if not any(tx.witnesses):
        return tx.version + body + tx.lock_time
    witness = b"".join(compact(len(w)) + b"".join(compact(len(v)) + v for v in w) for w in tx.witnesses)
    return tx.version + b"\0\1" + body + witness + tx.lock_time


def block(*transactions, time=1_500_000_000, root=None, commitment=True):
    """A block of these behind a coinbase, which commits to their witnesses where they have any."""
    witnessed = commitment and any(any(tx.witnesses) for tx in transactions)
    outputs = [Output(1, b"")]
    if witnessed:
        tree = merkle_root([bytes(32), *(double_sha256(serialised(tx)) for tx in transactions)])
        outputs.append(Output(0, bytes.fromhex("6a24aa21a9ed") + double_sha256(tree + bytes(32))))
    coinbase = Transaction(
        b"\1\0\0\0",
        [Input(bytes(32), 0xFFFFFFFF, b"\1\2\3", bytes(4))],
        outputs,
        [[bytes(32)] if witnessed else []],
        bytes(4),
    )
    every = [coinbase, *transactions]
    root = merkle_root([tx.id for tx in every]) if root is None else root
    header = bytes(36) + root + time.to_bytes(4, "little") + bytes(8)
    return header + compact(len(every)) + b"".join(map(serialised, every))


def signed_with(script, shape, kind=1, key=0):
    """A block that spends `script`, its input's script made by `shape` from a signature; and what it spends."""
    tx = transaction()
    signature = KEYS[key].sign(tx.legacy_digest(0, script, kind), hasher=None) + bytes([kind])
    return block(with_script(tx, [shape(signature)])), {(SPENT, 0): Output(7, script)}


def verdicts(client, data, **options):
    found = list(records(data, **options))
    signed = [item for record in found for item in record.signed]
    codes = [v.code for v in settle(signed, verify_signed(client, signed))] if signed else []
    return codes, [item.why for record in found for item in record.unverifiable]
