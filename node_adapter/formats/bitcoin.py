"""Bitcoin blocks: the signatures of every input whose kind is known.

Kinds: pay to public key, to its hash, to a multi-signature script (bare, or by its hash), and their witness forms of
version 0, plain or nested. What an input spends is taken from the same block or from `spent`; where neither has
it, a key or script that the input shows tells what it must be, except for amounts (witness forms) and bare keys.
Whether a coin exists and is unspent is the node's to know.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from Cryptodome.Hash import RIPEMD160

from node_adapter.client import Algorithm, InputKind, KeyEncoding, Scheme, SignatureEncoding
from node_adapter.errors import FormatError
from node_adapter.formats._bitcoin import Output, Transaction, merkle_root, pushes, read_block
from node_adapter.formats._signed import Record, Signed, Unverifiable

__all__ = ["Spent", "read_spent", "records"]

# BIP 66 came into force with block 363,725, at this time; before it OpenSSL's lax reading was the rule.
_STRICT_FROM = 1_436_000_000
_CHECK_SIG, _CHECK_MULTISIG = 0xAC, 0xAE
_KEYS = {33: KeyEncoding.SEC1_COMPRESSED, 65: KeyEncoding.SEC1_UNCOMPRESSED}

Spent = Mapping[tuple[bytes, int], Output]
Found = list[Signed | Unverifiable]


@dataclass(frozen=True, slots=True)
class _Place:
    """An input: its transaction, its number, its name, and how its signatures are encoded."""

    transaction: Transaction
    number: int
    where: str
    encoding: SignatureEncoding


@dataclass(frozen=True, slots=True)
class _Lock:
    """What signatures must fit: the script that is signed, and the amount where it is signed, too."""

    script: bytes
    witness_amount: int | None


class _NotKnownError(Exception):
    """An input of a kind that is not verified here; the text says why."""


def records(data: bytes, *, spent: Spent | None = None) -> Iterator[Record]:
    """One record a transaction of a block, the coinbase included.

    A last record says so where the transactions are not those that the header was mined for. Raises FormatError at
    the byte that is wrong; the transactions before it have been given by then.
    """
    header, count, reader = read_block(data)
    time = int.from_bytes(header[68:72], "little")
    encoding = SignatureEncoding.DER_STRICT if time >= _STRICT_FROM else SignatureEncoding.DER_LAX
    coins = dict(spent or {})
    names = []
    for number in range(count):
        transaction = Transaction.read(reader)
        name = transaction.id
        names.append(name)
        yield _record(transaction, f"transaction {number} {name[::-1].hex()}", coins, encoding)
        coins.update({(name, place): output for place, output in enumerate(transaction.outputs)})
    if reader.at != len(data):
        raise FormatError(reader.at, f"{len(data) - reader.at} bytes behind the block")
    if names and merkle_root(names) != header[36:68]:
        why = "the header's Merkle root is not that of the transactions: the file is not the block that was mined"
        yield Record("block", 0, (), (Unverifiable("block header", why),))


def read_spent(text: str) -> dict[tuple[bytes, int], Output]:
    """Outputs that a block spends, one a line: "txid:index amount script".

    The script is in hexadecimal, the amount in satoshi. Raises FormatError at the start of a line that is not so.
    """
    coins = {}
    offset = 0
    for line in text.splitlines(keepends=True):
        if line.strip():
            try:
                outpoint, amount, script = line.split()
                name, index = outpoint.split(":")
                key = bytes.fromhex(name)[::-1], int(index)
                coins[key] = Output(int(amount), bytes.fromhex(script))
            except ValueError:
                raise FormatError(offset, 'not "txid:index amount script"') from None
        offset += len(line.encode())
    return coins


def _record(transaction: Transaction, where: str, coins: Spent, encoding: SignatureEncoding) -> Record:
    found: Found = []
    if not transaction.coinbase:
        for number, spending in enumerate(transaction.inputs):
            place = _Place(transaction, number, f"{where} input {number}", encoding)
            try:
                found += _input(place, coins.get((spending.previous, spending.index)))
            except _NotKnownError as reason:
                found.append(Unverifiable(place.where, str(reason)))
    return Record(
        where,
        1,
        tuple(item for item in found if isinstance(item, Signed)),
        tuple(item for item in found if isinstance(item, Unverifiable)),
    )


def _input(place: _Place, coin: Output | None) -> Found:
    spending = place.transaction.inputs[place.number]
    witness = place.transaction.witnesses[place.number]
    values = pushes(spending.script)
    if values is None:
        raise _NotKnownError("the input's script does more than push values")
    script = coin.script if coin else _guess(values, witness)
    if _is_script_hash(script):
        if not values or _hash160(values[-1]) != script[2:22]:
            raise _NotKnownError("the script shown does not have the hash that is spent")
        script, values = values[-1], values[:-1]
    amount = None
    if len(script) in (22, 34) and script[0] == 0 and script[1] == len(script) - 2:
        if coin is None:
            raise _NotKnownError("a witness input signs the amount that it spends, and that output is not given")
        script, values, amount = _witness(script, witness), witness, coin.amount
        if script[0] == 0x76:
            return _key_hash(place, values, _Lock(script, amount))
        values = values[:-1]
    if script[:1] == b"\x51" and len(script) == 34:
        raise _NotKnownError("a Taproot input is signed with Schnorr's scheme")
    return _unlock(place, values, _Lock(script, amount))


def _unlock(place: _Place, values: list[bytes], lock: _Lock) -> Found:
    script = lock.script
    if len(script) == 25 and script[:3] == b"\x76\xa9\x14" and script[23:] == b"\x88\xac":
        return _key_hash(place, values, lock)
    if script[-1:] == bytes([_CHECK_SIG]) and len(script) - 2 in _KEYS and script[0] == len(script) - 2:
        if len(values) != 1:
            raise _NotKnownError(f"{len(values)} values for a script that takes one signature")
        return [_signed(place, place.where, values[0], script[1:-1], lock)]
    if script[-1:] == bytes([_CHECK_MULTISIG]):
        return _multisig(place, values, lock)
    raise _NotKnownError(f"a script of another kind: {script[:40].hex()}")


def _guess(values: list[bytes], witness: list[bytes]) -> bytes:
    """The script that is spent, from what the input shows."""
    if witness and not values:
        raise _NotKnownError("a witness input signs the amount that it spends, and that output is not given")
    if len(values) == 2 and len(values[1]) in _KEYS and values[1][0] in (2, 3, 4, 6, 7):
        return _pay_to_key_hash(_hash160(values[1]))
    if len(values) == 1 and not witness and values[0][:1] == b"\x30":
        raise _NotKnownError("only a signature is shown, and the output with its key is not given")
    if values and values[-1]:
        return b"\xa9\x14" + _hash160(values[-1]) + b"\x87"
    raise _NotKnownError("the output that is spent is not given, and nothing tells its kind")


def _witness(program: bytes, witness: list[bytes]) -> bytes:
    """The script that is signed under a witness program of version 0."""
    if len(program) == 22:
        return _pay_to_key_hash(program[2:])
    if not witness or hashlib.sha256(witness[-1]).digest() != program[2:]:
        raise _NotKnownError("the witness script does not have the hash that is spent")
    if not witness[-1]:
        raise _NotKnownError("an empty witness script")
    return witness[-1]


def _key_hash(place: _Place, values: list[bytes], lock: _Lock) -> Found:
    if len(values) != 2:
        raise _NotKnownError(f"{len(values)} values for a script that takes a signature and a key")
    signature, key = values
    if _hash160(key) != lock.script[3:23]:
        raise _NotKnownError("the key shown does not have the hash that is spent")
    return [_signed(place, place.where, signature, key, lock)]


def _multisig(place: _Place, values: list[bytes], lock: _Lock) -> Found:
    """m signatures by m of n keys, in the keys' order: each is asked about with every key that it could be by."""
    script = pushes(lock.script[:-1])
    if script is None or len(script) < 3 or any(len(number) != 1 for number in (script[0], script[-1])):
        raise _NotKnownError("a multi-signature script of another form")
    wanted, total, keys = script[0][0], script[-1][0], script[1:-1]
    if len(keys) != total or not 0 < wanted <= total or len(values) != wanted + 1:
        raise _NotKnownError(f"{len(values)} values for {wanted} signatures of {len(keys)} keys")
    found: Found = []
    for number, signature in enumerate(values[1:]):
        where = f"{place.where} signature {number}"
        for key in range(number, total - wanted + number + 1):
            found.append(_signed(place, where, signature, keys[key], lock, (place.where, number, key)))
    return found


def _signed(
    place: _Place,
    where: str,
    signature: bytes,
    key: bytes,
    lock: _Lock,
    choice: tuple[str, int, int] | None = None,
) -> Signed:
    if not signature:
        raise _NotKnownError("an empty signature")
    encoding = _KEYS.get(len(key))
    if encoding is None or key[0] in (6, 7):
        raise _NotKnownError(f"a key of {len(key)} bytes that begins with {key[:1].hex() or 'nothing'}")
    kind = signature[-1]
    transaction, number = place.transaction, place.number
    if lock.witness_amount is None:
        digest = transaction.legacy_digest(number, lock.script, kind)
    else:
        digest = transaction.witness_digest(number, lock.script, lock.witness_amount, kind)
    scheme = Scheme(Algorithm.ECDSA_SECP256K1, InputKind.DIGEST, place.encoding, encoding)
    return Signed(where, scheme, digest, signature[:-1], key, choice=choice)


def _pay_to_key_hash(hash_: bytes) -> bytes:
    return b"\x76\xa9\x14" + hash_ + b"\x88\xac"


def _is_script_hash(script: bytes) -> bool:
    return len(script) == 23 and script[:2] == b"\xa9\x14" and script[22] == 0x87


def _hash160(data: bytes) -> bytes:
    return RIPEMD160.new(hashlib.sha256(data).digest()).digest()
