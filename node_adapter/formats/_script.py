"""Bitcoin's scripts, run to find the signatures that they check.

No signature is verified here: a check of one that is not empty is taken to succeed and is written down, with the
script that it signs. Where a script ends in true, its input is right exactly if all of those are. Lock times are not
compared with anything: whether a coin may be spent yet is the node's to know.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from Cryptodome.Hash import RIPEMD160

__all__ = ["Check", "ScriptError", "hash160", "operations", "run", "truth", "without"]

_MOST_OPERATIONS, _MOST_KEYS, _MOST_STACK, _MOST_NUMBER_BYTES = 201, 20, 1000, 4
_CODE_SEPARATOR = 0xAB


class ScriptError(Exception):
    """A script that fails, whatever its signatures are worth; the text says why."""


@dataclass(frozen=True, slots=True)
class Check:
    """Signatures that must be by different ones of the keys, in their order, over `script` (one of each: CHECKSIG).

    `script` is that from the last OP_CODESEPARATOR on that was run.
    """

    signatures: tuple[bytes, ...]
    keys: tuple[bytes, ...]
    script: bytes


def hash160(data: bytes) -> bytes:
    """RIPEMD-160 of SHA-256."""
    return RIPEMD160.new(hashlib.sha256(data).digest()).digest()


def operations(script: bytes) -> Iterator[tuple[int, bytes, int]]:
    """Each operation's code, the value it pushes, and where the next begins. Raises ScriptError where cut short."""
    at = 0
    while at < len(script):
        code = script[at]
        at += 1
        value = b""
        if code <= 0x4E:
            width = {0x4C: 1, 0x4D: 2, 0x4E: 4}.get(code, 0)
            length = int.from_bytes(script[at : at + width], "little") if width else code
            at += width
            if at + length > len(script):
                raise ScriptError("a push runs over the script's end")
            value = script[at : at + length]
            at += length
        elif code == 0x4F or 0x51 <= code <= 0x60:
            value = _number(code - 0x50)
        yield code, value, at


def without(script: bytes, part: bytes) -> bytes:
    """The script less every place where an operation begins and `part` stands."""
    kept = b""
    start = at = 0
    ends = [0]
    try:
        for _, _, end in operations(script):
            ends.append(end)
    except ScriptError:
        pass  # what follows is no operation, and stays
    for begin in ends:
        if part and begin >= at and script.startswith(part, begin):
            kept += script[start:begin]
            at = begin
            while script.startswith(part, at):
                at += len(part)
            start = at
    return kept + script[start:]


def truth(value: bytes) -> bool:
    """Whether a value counts as true: any but zero and negative zero."""
    return any(value[:-1]) or (bool(value) and value[-1] not in (0, 0x80))


def run(script: bytes, stack: list[bytes]) -> list[Check]:
    """Runs a script on a stack, which it changes. Gives the checks of signatures that it made. Raises ScriptError."""
    machine = _Machine(script, stack)
    try:
        machine.run()
    except IndexError:
        raise ScriptError("a value is missing on the stack") from None
    return machine.checks


@dataclass(slots=True)
class _Machine:
    script: bytes
    stack: list[bytes]
    other: list[bytes] = field(default_factory=list)
    branches: list[bool] = field(default_factory=list)
    checks: list[Check] = field(default_factory=list)
    begin: int = 0  # behind the last separator

    def run(self) -> None:
        count = 0
        for code, value, after in operations(self.script):
            count += code > 0x60
            if count > _MOST_OPERATIONS:
                raise ScriptError(f"more than {_MOST_OPERATIONS} operations")
            if code in _DISABLED:
                raise ScriptError(f"operation 0x{code:02x} is disabled")
            running = all(self.branches)
            if 0x63 <= code <= 0x68 and code in _BRANCHING:
                self._branch(code, running)
            elif not running:
                continue
            elif code <= 0x4F or 0x51 <= code <= 0x60:
                self.stack.append(value)
            elif code == _CODE_SEPARATOR:
                self.begin = after
            elif code in _OPERATIONS:
                count += _OPERATIONS[code](self) or 0
            elif code not in _NOTHING:
                raise ScriptError(f"operation 0x{code:02x} is not known")
            if len(self.stack) + len(self.other) > _MOST_STACK:
                raise ScriptError(f"more than {_MOST_STACK} values on the stack")
        if self.branches:
            raise ScriptError("an IF without its ENDIF")

    def _branch(self, code: int, running: bool) -> None:
        if code in (0x63, 0x64):
            self.branches.append(running and truth(self.stack.pop()) == (code == 0x63))
            return
        if not self.branches:
            raise ScriptError("an ELSE or ENDIF without its IF")
        if code == 0x67:
            self.branches[-1] = not self.branches[-1]
        else:
            self.branches.pop()

    def pop(self, count: int) -> list[bytes]:
        """The last `count` values, in the order in which they were pushed."""
        if count > len(self.stack):
            raise IndexError
        values = self.stack[len(self.stack) - count :]
        del self.stack[len(self.stack) - count :]
        return values

    def number(self) -> int:
        """The last value as a number of at most 4 bytes, little-endian with a sign bit."""
        value = self.stack.pop()
        if len(value) > _MOST_NUMBER_BYTES:
            raise ScriptError(f"a number of {len(value)} bytes; at most {_MOST_NUMBER_BYTES} are allowed")
        if not value:
            return 0
        size = int.from_bytes(value[:-1] + bytes([value[-1] & 0x7F]), "little")
        return -size if value[-1] & 0x80 else size

    def verify(self) -> None:
        if not truth(self.stack.pop()):
            raise ScriptError("a condition of the script is not met")

    def check_signature(self) -> None:
        signature, key = self.pop(2)
        if signature:
            self.checks.append(Check((signature,), (key,), self.script[self.begin :]))
        self.stack.append(_flag(bool(signature)))

    def check_signatures(self) -> int:
        total = self.number()
        if not 0 <= total <= _MOST_KEYS:
            raise ScriptError(f"{total} keys; 0 to {_MOST_KEYS} are allowed")
        keys = self.pop(total)
        wanted = self.number()
        if not 0 <= wanted <= total:
            raise ScriptError(f"{wanted} signatures by {total} keys")
        signatures = self.pop(wanted)
        self.stack.pop()  # one value too many, since the first implementation
        if wanted and all(signatures):
            self.checks.append(Check(tuple(signatures), tuple(keys), self.script[self.begin :]))
        self.stack.append(_flag(all(signatures)))
        return total


def _number(value: int) -> bytes:
    size = abs(value)
    content = bytearray(size.to_bytes((size.bit_length() + 7) // 8, "little"))
    if content and content[-1] & 0x80:
        content.append(0)
    if value < 0:
        content[-1] |= 0x80
    return bytes(content)


def _flag(value: bool) -> bytes:
    return b"\1" if value else b""


def _fail(_: _Machine) -> None:
    raise ScriptError("OP_RETURN")


def _shuffle(takes: int, gives: tuple[int, ...]) -> Callable[[_Machine], None]:
    def shuffle(machine: _Machine) -> None:
        values = machine.pop(takes)
        machine.stack += [values[place] for place in gives]

    return shuffle


def _pick(keep: bool) -> Callable[[_Machine], None]:
    def pick(machine: _Machine) -> None:
        depth = machine.number()
        if not 0 <= depth < len(machine.stack):
            raise IndexError
        place = len(machine.stack) - 1 - depth
        machine.stack.append(machine.stack[place] if keep else machine.stack.pop(place))

    return pick


def _compute(takes: int, function: Callable[..., int]) -> Callable[[_Machine], None]:
    def compute(machine: _Machine) -> None:
        numbers = [machine.number() for _ in range(takes)][::-1]
        machine.stack.append(_number(int(function(*numbers))))

    return compute


def _hash(function: Callable[[bytes], bytes]) -> Callable[[_Machine], None]:
    return lambda machine: machine.stack.append(function(machine.stack.pop()))


def _equal(machine: _Machine) -> None:
    first, second = machine.pop(2)
    machine.stack.append(_flag(first == second))


def _if_dup(machine: _Machine) -> None:
    if truth(machine.stack[-1]):
        machine.stack.append(machine.stack[-1])


def _then_verify(function: Callable[[_Machine], int | None]) -> Callable[[_Machine], int]:
    def both(machine: _Machine) -> int:
        count = function(machine) or 0
        machine.verify()
        return count

    return both


_BRANCHING = {0x63, 0x64, 0x67, 0x68}
_NOTHING = {0x61, *range(0xB0, 0xBA)}  # NOPs; two of them are lock times, which leave the stack as it is
_DISABLED = {0x7E, 0x7F, 0x80, 0x81, 0x83, 0x84, 0x85, 0x86, 0x8D, 0x8E, 0x95, 0x96, 0x97, 0x98, 0x99, 0x65, 0x66}
_same_number = _compute(2, lambda a, b: a == b)
_OPERATIONS: dict[int, Callable[[_Machine], int | None]] = {
    0x69: _Machine.verify,
    0x6A: _fail,
    0x6B: lambda m: m.other.append(m.stack.pop()),
    0x6C: lambda m: m.stack.append(m.other.pop()),
    0x6D: _shuffle(2, ()),
    0x6E: _shuffle(2, (0, 1, 0, 1)),
    0x6F: _shuffle(3, (0, 1, 2, 0, 1, 2)),
    0x70: _shuffle(4, (0, 1, 2, 3, 0, 1)),
    0x71: _shuffle(6, (2, 3, 4, 5, 0, 1)),
    0x72: _shuffle(4, (2, 3, 0, 1)),
    0x73: _if_dup,
    0x74: lambda m: m.stack.append(_number(len(m.stack))),
    0x75: _shuffle(1, ()),
    0x76: _shuffle(1, (0, 0)),
    0x77: _shuffle(2, (1,)),
    0x78: _shuffle(2, (0, 1, 0)),
    0x79: _pick(keep=True),
    0x7A: _pick(keep=False),
    0x7B: _shuffle(3, (1, 2, 0)),
    0x7C: _shuffle(2, (1, 0)),
    0x7D: _shuffle(2, (1, 0, 1)),
    0x82: lambda m: m.stack.append(_number(len(m.stack[-1]))),
    0x87: _equal,
    0x88: _then_verify(_equal),
    0x8B: _compute(1, lambda a: a + 1),
    0x8C: _compute(1, lambda a: a - 1),
    0x8F: _compute(1, lambda a: -a),
    0x90: _compute(1, abs),
    0x91: _compute(1, lambda a: a == 0),
    0x92: _compute(1, lambda a: a != 0),
    0x93: _compute(2, lambda a, b: a + b),
    0x94: _compute(2, lambda a, b: a - b),
    0x9A: _compute(2, lambda a, b: a != 0 and b != 0),
    0x9B: _compute(2, lambda a, b: a != 0 or b != 0),
    0x9C: _same_number,
    0x9D: _then_verify(_same_number),
    0x9E: _compute(2, lambda a, b: a != b),
    0x9F: _compute(2, lambda a, b: a < b),
    0xA0: _compute(2, lambda a, b: a > b),
    0xA1: _compute(2, lambda a, b: a <= b),
    0xA2: _compute(2, lambda a, b: a >= b),
    0xA3: _compute(2, min),
    0xA4: _compute(2, max),
    0xA5: _compute(3, lambda value, least, most: least <= value < most),
    0xA6: _hash(lambda data: RIPEMD160.new(data).digest()),
    0xA7: _hash(lambda data: hashlib.sha1(data, usedforsecurity=False).digest()),
    0xA8: _hash(lambda data: hashlib.sha256(data).digest()),
    0xA9: _hash(hash160),
    0xAA: _hash(lambda data: hashlib.sha256(hashlib.sha256(data).digest()).digest()),
    0xAC: _Machine.check_signature,
    0xAD: _then_verify(_Machine.check_signature),
    0xAE: _Machine.check_signatures,
    0xAF: _then_verify(_Machine.check_signatures),
}
