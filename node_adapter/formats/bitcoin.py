"""Bitcoin blocks: the signatures that every input's script checks.

A file is one block, or a node's blk*.dat (blocks each behind network magic and length). Scripts are run to find their
checks: pay to public key, to its hash, multi-signature scripts, bare or by their hash, any other script, and witness
programs of version 0, plain or nested. What an input spends is taken from blocks read before, from the same block or
from `spent`; where none has it, a key or script that the input shows tells what it must be, except for amounts
(witness programs) and bare keys. Rules hold from the times on at which the main net took them up. Taproot is signed
with Schnorr's scheme and named as not verifiable. Whether a coin exists, is unspent and old enough, and whether the
amounts add up, is the node's to know.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, MutableMapping
from dataclasses import dataclass, replace

from node_adapter.client import Algorithm, InputKind, KeyEncoding, Scheme, SignatureEncoding
from node_adapter.errors import FormatError
from node_adapter.formats._bitcoin import Output, Reader, Transaction, double_sha256, pushes, read_header
from node_adapter.formats._commitments import committed, faults
from node_adapter.formats._interpreter import run
from node_adapter.formats._machine import MOST_VALUE_BYTES, Check, Context
from node_adapter.formats._rules import Rules
from node_adapter.formats._script import ScriptError, hash160, push, truth, without
from node_adapter.formats._signed import Record, Signed, Unsigned, Unverifiable
from node_adapter.formats._spent import read_spent

__all__ = ["Spent", "read_spent", "records"]

# What a node writes before each block in its files: main, test (3 and 4), signet, regtest.
_MAGIC = {bytes.fromhex(magic) for magic in ("f9beb4d9", "0b110907", "1c163f28", "0a03cf40", "fabfb5da")}

Spent = MutableMapping[tuple[bytes, int], Output]
Found = list[Signed | Unverifiable | Unsigned]


@dataclass(frozen=True, slots=True)
class _Place:
    """An input: its transaction, its number and its name, and the rules of its block.

    `stripped`: the block was written without its witnesses.
    """

    transaction: Transaction
    number: int
    where: str
    rules: Rules
    stripped: bool = False

    def run(self, script: bytes, stack: list[bytes]) -> list[Check]:
        """Runs a script of this input. Raises ScriptError."""
        transaction = self.transaction
        context = Context(
            int.from_bytes(transaction.version, "little"),
            int.from_bytes(transaction.lock_time, "little"),
            int.from_bytes(transaction.inputs[self.number].sequence, "little"),
            self.rules.strict_der,
            self.rules.lock_time,
            self.rules.sequence,
            self.rules.null_dummy,
        )
        return run(script, stack, context)


class _NotKnownError(Exception):
    """An input that cannot be verified here; the text says why."""


class _NoSignatureError(Exception):
    """An input whose script checks no signature; the text says so."""


def records(data: bytes, *, spent: Spent | None = None) -> Iterator[Record]:
    """One record a transaction, the coinbase included. Outputs are added to `spent` as they are read.

    A record of the block header says so where the transactions are not those that it was mined for. Raises
    FormatError at the byte that is wrong; the transactions before it have been given by then.
    """
    coins = {} if spent is None else spent
    if data[:4] not in _MAGIC:
        reader = Reader(data)
        yield from _block(reader, "", coins)
        if reader.at != len(data):
            raise FormatError(reader.at, f"{len(data) - reader.at} bytes behind the block")
        return
    at = number = 0
    while at < len(data) and any(data[at : at + 8]):  # a node's files end in zeros
        if data[at : at + 4] != data[:4]:
            raise FormatError(at, f"{data[at : at + 4].hex()}; a block begins with the magic {data[:4].hex()}")
        length = int.from_bytes(data[at + 4 : at + 8], "little")
        if length > len(data) - at - 8:
            raise FormatError(at + 4, f"a block of {length} bytes, but {max(0, len(data) - at - 8)} are left")
        reader = Reader(data, at + 8, at + 8 + length)
        yield from _block(reader, f"block {number} ", coins)
        if reader.at != reader.end:
            raise FormatError(reader.at, f"{reader.end - reader.at} bytes behind the block")
        at, number = reader.end, number + 1


def _block(reader: Reader, prefix: str, coins: Spent) -> Iterator[Record]:
    header, count = read_header(reader)
    time = int.from_bytes(header[68:72], "little")
    rules = Rules.at(time)
    names, witness_names = [], []
    for number in range(count):
        begin = reader.at
        transaction = Transaction.read(reader)
        if not number:
            first = transaction
            # A coinbase that commits to witnesses has one itself.
            stripped = not any(first.witnesses) and committed(first) is not None
        name = transaction.id
        names.append(name)
        witness_names.append(double_sha256(reader.data[begin : reader.at]) if any(transaction.witnesses) else name)
        where = f"{prefix}transaction {number} {name[::-1].hex()}"
        record = _record(transaction, where, coins, rules, first=number == 0, stripped=stripped)
        yield replace(record, stop=reader.at)
        coins.update({(name, place): output for place, output in enumerate(transaction.outputs)})
    where = f"{prefix or 'block '}header"
    wrong = [Unverifiable(where, why) for why in faults(header[36:68], first, names, witness_names)]
    if wrong:
        yield Record(where, 0, (), tuple(wrong), stop=reader.at)


def _record(
    transaction: Transaction, where: str, coins: Spent, rules: Rules, *, first: bool = False, stripped: bool = False
) -> Record:
    found: Found = []
    if not (first and transaction.coinbase):
        for number, spending in enumerate(transaction.inputs):
            place = _Place(transaction, number, f"{where} input {number}", rules, stripped)
            coin = coins.get((spending.previous, spending.index))
            try:
                found += _input(place, coin)
            except _NotKnownError as reason:
                found.append(Unverifiable(place.where, str(reason)))
            except ScriptError as reason:
                guessed = "" if coin else "the output that is spent is not given; spent as it looks, "
                found.append(Unverifiable(place.where, f"{guessed}its script fails: {reason}"))
            except _NoSignatureError as reason:
                found.append(Unsigned(place.where, str(reason)))
    return Record.of(where, 1, found)


def _input(place: _Place, coin: Output | None) -> list[Signed]:
    spending = place.transaction.inputs[place.number]
    witness = place.transaction.witnesses[place.number]
    if spending.spends_nothing:
        raise _NotKnownError("it spends nothing, as the first transaction of a block alone may: its coinbase")
    lock = coin.script if coin else _guess(pushes(spending.script), witness)
    if _witness_version(lock) is not None:
        if spending.script:
            raise ScriptError("a witness program is spent, but the input's script is not empty")
        return _witness(place, lock, witness, coin, nested=False)
    stack: list[bytes] = []
    checks = place.run(spending.script, stack)  # a signature in the input's own script signs that script
    shown = list(stack)
    checks += _run_to_the_end(place, lock, stack)
    if _is_script_hash(lock) and place.rules.script_hash:
        if pushes(spending.script) is None:
            raise ScriptError("a script hash is spent, but the input's script does more than push values")
        script, stack = shown[-1], shown[:-1]
        if _witness_version(script) is not None:
            if spending.script != push(script):
                raise ScriptError("a witness program is spent, but the input's script does more than push it")
            return _witness(place, script, witness, coin, nested=True)
        checks = _run_to_the_end(place, script, stack)
    if witness:
        raise ScriptError("it has a witness, but spends no witness program")
    if not checks:
        if coin is None:
            raise _NotKnownError("the output that is spent is not given, and what is shown checks no signature")
        raise _NoSignatureError("its script checks no signature")
    return _signed(place, checks, None)


def _witness(
    place: _Place, program: bytes, witness: list[bytes], coin: Output | None, *, nested: bool
) -> list[Signed]:
    """A witness program's signatures (BIP 141, 143)."""
    version, content = _witness_version(program), program[2:]
    if not truth(content):
        raise ScriptError("a witness program of zeros, which does not end in true")
    if version == 1 and len(content) == 32 and not nested and place.rules.taproot:
        raise _NotKnownError("a Taproot input is signed with Schnorr's scheme, which no plugin verifies")
    if version:
        raise _NoSignatureError(f"witness programs of version {version} and {len(content)} bytes have no rules yet")
    if place.stripped:
        raise _NotKnownError("its witness is not given: the block was written without witnesses")
    if coin is None:
        raise _NotKnownError("a witness input signs the amount that it spends, and that output is not given")
    if len(content) == 20:
        script, stack = b"\x76\xa9\x14" + content + b"\x88\xac", list(witness)
        if len(stack) != 2:
            raise ScriptError(f"{len(stack)} witness values; a signature and a key are expected")
    elif len(content) == 32:
        if not witness or hashlib.sha256(witness[-1]).digest() != content:
            raise ScriptError("the witness script does not have the hash that is spent")
        script, stack = witness[-1], list(witness[:-1])
    else:
        raise ScriptError(f"a witness program of version 0 with {len(content)} bytes; it has 20 or 32")
    longest = max(map(len, stack), default=0)
    if longest > MOST_VALUE_BYTES:
        raise ScriptError(f"a witness value of {longest} bytes; at most {MOST_VALUE_BYTES} are allowed")
    checks = _run_to_the_end(place, script, stack)
    if len(stack) > 1:
        raise ScriptError(f"its witness script leaves {len(stack)} values; one is expected")
    if not checks:
        raise _NoSignatureError("its witness script checks no signature")
    return _signed(place, checks, coin.amount)


def _run_to_the_end(place: _Place, script: bytes, stack: list[bytes]) -> list[Check]:
    checks = place.run(script, stack)
    if not stack or not truth(stack[-1]):
        assumed = ", if its signatures are valid" if checks else ""
        raise ScriptError(f"it does not end in true{assumed}: {script[:40].hex()}")
    return checks


def _signed(place: _Place, checks: list[Check], amount: int | None) -> list[Signed]:
    """What each check signs. Of several keys, a signature is asked about with every one that it could be by."""
    found = []
    for number, check in enumerate(checks):
        name = place.where if len(checks) == 1 else f"{place.where} check {number}"
        script = check.script
        if amount is None:
            for signature in check.signatures:
                script = without(script, push(signature))
        spare = len(check.keys) - len(check.signatures)
        for which, signature in enumerate(check.signatures):
            where = name if len(check.keys) == 1 else f"{name} signature {which}"
            kind = signature[-1]
            if amount is None:
                digest = place.transaction.legacy_digest(place.number, script, kind)
            else:
                digest = place.transaction.witness_digest(place.number, script, amount, kind)
            for key in range(which, which + spare + 1):
                choice = (name, which, key) if len(check.keys) > 1 else None
                found.append(_question(place, where, digest, signature[:-1], check.keys[key], choice))
    return found


def _question(
    place: _Place, where: str, digest: bytes, signature: bytes, key: bytes, choice: tuple[str, int, int] | None
) -> Signed:
    if len(key) == 65 and key[0] in (6, 7) and key[0] & 1 == key[-1] & 1:
        key = b"\4" + key[1:]  # the hybrid form of X9.62, which says y's parity besides y
    encoding = KeyEncoding.SEC1_UNCOMPRESSED if len(key) == 65 else KeyEncoding.SEC1_COMPRESSED
    form = SignatureEncoding.DER_STRICT if place.rules.strict_der else SignatureEncoding.DER_LAX
    scheme = Scheme(Algorithm.ECDSA_SECP256K1, InputKind.DIGEST, form, encoding)
    return Signed(where, scheme, digest, signature, key, choice=choice)


def _guess(values: list[bytes] | None, witness: list[bytes]) -> bytes:
    """The script that is spent, from what the input shows."""
    if values is None:
        raise _NotKnownError("its script does more than push values, and the output that is spent is not given")
    if witness and not values:
        if len(witness) == 1 and len(witness[0]) in (64, 65):
            raise _NotKnownError("it looks like Taproot, signed with Schnorr's scheme; its output is not given")
        raise _NotKnownError("a witness input signs the amount that it spends, and that output is not given")
    if len(values) == 2 and len(values[1]) in (33, 65) and values[1][0] in (2, 3, 4, 6, 7):
        return b"\x76\xa9\x14" + hash160(values[1]) + b"\x88\xac"
    if values and all(not value or value[:1] == b"\x30" for value in values) and not witness:
        raise _NotKnownError("only signatures are shown, and the output with their keys is not given")
    if values and values[-1]:
        return b"\xa9\x14" + hash160(values[-1]) + b"\x87"
    raise _NotKnownError("the output that is spent is not given, and nothing tells its kind")


def _witness_version(script: bytes) -> int | None:
    """The version of a witness program (BIP 141), or None where the script is none."""
    if (
        not 4 <= len(script) <= 42
        or script[1] != len(script) - 2
        or not (script[0] == 0 or 0x51 <= script[0] <= 0x60)
    ):
        return None
    return script[0] - 0x50 if script[0] else 0


def _is_script_hash(script: bytes) -> bool:
    return len(script) == 23 and script[:2] == b"\xa9\x14" and script[22] == 0x87
