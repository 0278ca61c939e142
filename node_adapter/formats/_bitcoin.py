"""Bitcoin's serialisation: blocks, transactions, the pushes of a script, and what a signature signs."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field

from node_adapter.errors import FormatError
from node_adapter.formats._script import ScriptError, operations, without

__all__ = ["Input", "Output", "Reader", "Transaction", "double_sha256", "merkle_root", "pushes", "read_header"]

SIGHASH_NONE, SIGHASH_SINGLE, ANYONE_CAN_PAY = 2, 3, 0x80
_HEADER_BYTES = 80


def double_sha256(data: bytes) -> bytes:
    """SHA-256 twice."""
    return hashlib.sha256(hashlib.sha256(data).digest()).digest()


def merkle_root(names: list[bytes]) -> bytes:
    """The root of the tree over transaction names; where a level is odd its last name stands twice."""
    level = list(names)
    while len(level) > 1:
        if len(level) % 2:
            level.append(level[-1])
        level = [double_sha256(left + right) for left, right in zip(level[::2], level[1::2], strict=True)]
    return level[0]


class Reader:
    """Reads little-endian fields up to `end`. Every method raises FormatError at the field's first byte."""

    def __init__(self, data: bytes, at: int = 0, end: int | None = None) -> None:
        self.data = data
        self.at = at
        self.end = len(data) if end is None else end

    def take(self, count: int, what: str) -> bytes:
        """The next `count` bytes."""
        if count > self.end - self.at:
            raise FormatError(self.at, f"{what} of {count} bytes, but {self.end - self.at} are left")
        self.at += count
        return self.data[self.at - count : self.at]

    def number(self, count: int, what: str) -> int:
        """The next `count` bytes as a number."""
        return int.from_bytes(self.take(count, what), "little")

    def size(self, what: str, least_bytes: int = 1) -> int:
        """A compact size of items of at least `least_bytes` each, which the rest of the data can hold."""
        begin = self.at
        first = self.number(1, what)
        value = first if first < 0xFD else self.number({0xFD: 2, 0xFE: 4, 0xFF: 8}[first], what)
        if first >= 0xFD and value < {0xFD: 0xFD, 0xFE: 1 << 16, 0xFF: 1 << 32}[first]:
            raise FormatError(begin, f"{what}: the size is not minimal")
        if value * least_bytes > self.end - self.at:
            raise FormatError(begin, f"{what}: {value}, but {self.end - self.at} bytes are left")
        return value

    def string(self, what: str) -> bytes:
        """Bytes behind their size."""
        return self.take(self.size(what), what)


@dataclass(frozen=True, slots=True)
class Input:
    """Spends output `index` of the transaction `previous` (as serialised, not reversed)."""

    previous: bytes
    index: int
    script: bytes
    sequence: bytes

    @property
    def outpoint(self) -> bytes:
        """What is spent, serialised."""
        return self.previous + self.index.to_bytes(4, "little")

    @property
    def spends_nothing(self) -> bool:
        """Whether it is a coinbase's, which refers to no output."""
        return self.previous == bytes(32) and self.index == 0xFFFFFFFF


@dataclass(frozen=True, slots=True)
class Output:
    """An amount in satoshi and the script that guards it."""

    amount: int
    script: bytes

    def serialised(self) -> bytes:
        """As it stands in a transaction."""
        return self.amount.to_bytes(8, "little") + compact(len(self.script)) + self.script


@dataclass(slots=True)
class Transaction:
    """One transaction, and parts of its signed forms that all inputs share."""

    version: bytes
    inputs: list[Input]
    outputs: list[Output]
    witnesses: list[list[bytes]]
    lock_time: bytes
    _shared: dict[str, bytes] = field(default_factory=dict)

    @classmethod
    def read(cls, reader: Reader) -> Transaction:
        """The transaction that begins here, with or without witnesses (BIP 144)."""
        version = reader.take(4, "version")
        marker = reader.at
        segregated = reader.data[reader.at : reader.at + 2] == b"\0\1"
        if segregated:
            reader.take(2, "marker")
        inputs = [
            Input(
                reader.take(32, "previous transaction"),
                reader.number(4, "output index"),
                reader.string("input script"),
                reader.take(4, "sequence"),
            )
            for _ in range(reader.size("inputs", 41))
        ]
        outputs = [
            Output(reader.number(8, "amount"), reader.string("output script"))
            for _ in range(reader.size("outputs", 9))
        ]
        witnesses = [
            [reader.string("witness") for _ in range(reader.size("witnesses"))] if segregated else [] for _ in inputs
        ]
        if segregated and not any(witnesses):
            raise FormatError(marker, "witnesses are announced, and no input has one")
        return cls(version, inputs, outputs, witnesses, reader.take(4, "lock time"))

    @property
    def id(self) -> bytes:
        """The transaction's name, as inputs refer to it: the double hash of all but the witnesses."""
        inputs = b"".join(i.outpoint + compact(len(i.script)) + i.script + i.sequence for i in self.inputs)
        return double_sha256(
            self.version
            + compact(len(self.inputs))
            + inputs
            + compact(len(self.outputs))
            + self._all_outputs()
            + self.lock_time
        )

    @property
    def coinbase(self) -> bool:
        """Whether it makes new money: its input spends nothing and is not signed."""
        return len(self.inputs) == 1 and self.inputs[0].spends_nothing

    def _all_outputs(self) -> bytes:
        return self._once("outputs", lambda: b"".join(output.serialised() for output in self.outputs))

    def _once(self, name: str, make: Callable[[], bytes]) -> bytes:
        if name not in self._shared:
            self._shared[name] = make()
        return self._shared[name]

    def legacy_digest(self, place: int, script: bytes, kind: int) -> bytes:
        """The digest that an input's signature of this hash type signs, before segregated witness.

        `script` is that of the output, or behind a script hash, less the signature itself; OP_CODESEPARATORs are left
        out here.
        """
        base = kind & 0x1F
        if base == SIGHASH_SINGLE and place >= len(self.outputs):
            return b"\1" + bytes(31)  # the rule as the first implementation had it
        mine = self.inputs[place]
        script = without(script, b"\xab")
        scripted = compact(len(script)) + script
        if kind & ANYONE_CAN_PAY:
            inputs = [compact(1), mine.outpoint, scripted, mine.sequence]
        else:
            blank = base in (SIGHASH_NONE, SIGHASH_SINGLE)
            inputs = [compact(len(self.inputs))]
            for number, other in enumerate(self.inputs):
                sequence = bytes(4) if blank and number != place else other.sequence
                inputs += [other.outpoint, scripted if number == place else b"\0", sequence]
        if base == SIGHASH_NONE:
            outputs = compact(0)
        elif base == SIGHASH_SINGLE:
            empty = (b"\xff" * 8 + b"\0") * place
            outputs = compact(place + 1) + empty + self.outputs[place].serialised()
        else:
            outputs = compact(len(self.outputs)) + self._all_outputs()
        return double_sha256(self.version + b"".join(inputs) + outputs + self.lock_time + kind.to_bytes(4, "little"))

    def witness_digest(self, place: int, script: bytes, amount: int, kind: int) -> bytes:
        """The digest of a witness program, version 0 (BIP 143)."""
        base = kind & 0x1F
        mine = self.inputs[place]
        alone = bool(kind & ANYONE_CAN_PAY)
        blank = base in (SIGHASH_NONE, SIGHASH_SINGLE)
        outpoints = sequences = outputs = bytes(32)
        if not alone:
            outpoints = self._once("outpoints", lambda: double_sha256(b"".join(i.outpoint for i in self.inputs)))
        if not alone and not blank:
            sequences = self._once("sequences", lambda: double_sha256(b"".join(i.sequence for i in self.inputs)))
        if not blank:
            outputs = self._once("hash of outputs", lambda: double_sha256(self._all_outputs()))
        elif base == SIGHASH_SINGLE and place < len(self.outputs):
            outputs = double_sha256(self.outputs[place].serialised())
        return double_sha256(
            self.version
            + outpoints
            + sequences
            + mine.outpoint
            + compact(len(script))
            + script
            + amount.to_bytes(8, "little")
            + mine.sequence
            + outputs
            + self.lock_time
            + kind.to_bytes(4, "little")
        )


def compact(value: int) -> bytes:
    """A compact size."""
    if value < 0xFD:
        return bytes([value])
    for prefix, width in ((0xFD, 2), (0xFE, 4), (0xFF, 8)):
        if value < 1 << (8 * width):
            return bytes([prefix]) + value.to_bytes(width, "little")
    raise ValueError(value)


def pushes(script: bytes) -> list[bytes] | None:
    """The values that a script of pushes alone leaves, or None where it does anything else or is cut short."""
    try:
        found = list(operations(script))
    except ScriptError:
        return None
    return [value for _, value, _ in found] if all(code <= 0x60 and code != 0x50 for code, _, _ in found) else None


def read_header(reader: Reader) -> tuple[bytes, int]:
    """A block's header, and how many transactions follow it: at least one. Raises FormatError."""
    header = reader.take(_HEADER_BYTES, "block header")
    begin = reader.at
    count = reader.size("transactions", 60)
    if not count:
        raise FormatError(begin, "a block without transactions")
    return header, count
