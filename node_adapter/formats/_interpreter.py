"""Bitcoin's scripts, run to find the signatures that they check.

No signature is verified here: a check of one that is not empty, by what could be a key, is taken to succeed and is
written down, with the script that it signs. Where a script ends in true, its input is right if all of those are.
What a script asks of its transaction is answered; whether that may be mined yet is the node's to know.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable

from Cryptodome.Hash import RIPEMD160

from node_adapter.formats._machine import MOST_VALUE_BYTES, Check, Context, Machine, flag
from node_adapter.formats._script import ScriptError, hash160, operations, truth
from node_adapter.formats._script import number as _number

__all__ = ["run"]

_MOST_SCRIPT_BYTES, _MOST_STACK = 10_000, 1000
_CODE_SEPARATOR = 0xAB


def run(script: bytes, stack: list[bytes], context: Context) -> list[Check]:
    """Runs a script on a stack, which it changes. Gives the checks of signatures that it made. Raises ScriptError."""
    machine = Machine(script, stack, context)
    try:
        _run(machine)
        return machine.checks
    except IndexError:
        problem = "a value is missing on the stack"
    except ScriptError as error:
        problem = str(error)
    if machine.checks:
        problem += ", if the signatures that it has checked by then are valid"
    raise ScriptError(problem)


def _run(machine: Machine) -> None:
    if len(machine.script) > _MOST_SCRIPT_BYTES:
        raise ScriptError(f"a script of {len(machine.script)} bytes; at most {_MOST_SCRIPT_BYTES} are allowed")
    for code, value, after in operations(machine.script):
        if len(value) > MOST_VALUE_BYTES:
            raise ScriptError(f"a value of {len(value)} bytes; at most {MOST_VALUE_BYTES} are allowed")
        if code > 0x60:
            machine.counted(1)
        if code in _DISABLED:
            raise ScriptError(f"operation 0x{code:02x} is disabled")
        running = all(machine.branches)
        if 0x63 <= code <= 0x68 and code in _BRANCHING:
            machine.branch(code, running)
        elif not running:
            continue
        elif code <= 0x4F or 0x51 <= code <= 0x60:
            machine.stack.append(value)
        elif code == _CODE_SEPARATOR:
            machine.begin = after
        elif code in _OPERATIONS:
            _OPERATIONS[code](machine)
        elif code not in _NOTHING:
            raise ScriptError(f"operation 0x{code:02x} is not known")
        if len(machine.stack) + len(machine.other) > _MOST_STACK:
            raise ScriptError(f"more than {_MOST_STACK} values on the stack")
    if machine.branches:
        raise ScriptError("an IF without its ENDIF")


def _fail(_: Machine) -> None:
    raise ScriptError("OP_RETURN")


def _shuffle(takes: int, gives: tuple[int, ...]) -> Callable[[Machine], None]:
    def shuffle(machine: Machine) -> None:
        values = machine.pop(takes)
        machine.stack += [values[place] for place in gives]

    return shuffle


def _pick(keep: bool) -> Callable[[Machine], None]:
    def pick(machine: Machine) -> None:
        depth = machine.number()
        if not 0 <= depth < len(machine.stack):
            raise IndexError
        place = len(machine.stack) - 1 - depth
        machine.stack.append(machine.stack[place] if keep else machine.stack.pop(place))

    return pick


def _compute(takes: int, function: Callable[..., int]) -> Callable[[Machine], None]:
    def compute(machine: Machine) -> None:
        numbers = [machine.number() for _ in range(takes)][::-1]
        machine.stack.append(_number(int(function(*numbers))))

    return compute


def _hash(function: Callable[[bytes], bytes]) -> Callable[[Machine], None]:
    return lambda machine: machine.stack.append(function(machine.stack.pop()))


def _equal(machine: Machine) -> None:
    first, second = machine.pop(2)
    machine.stack.append(flag(first == second))


def _if_dup(machine: Machine) -> None:
    if truth(machine.stack[-1]):
        machine.stack.append(machine.stack[-1])


def _then_verify(function: Callable[[Machine], None]) -> Callable[[Machine], None]:
    def both(machine: Machine) -> None:
        function(machine)
        machine.verify()

    return both


_BRANCHING = {0x63, 0x64, 0x67, 0x68}
_NOTHING = {0x61, 0xB0, *range(0xB3, 0xBA)}
_DISABLED = {0x7E, 0x7F, 0x80, 0x81, 0x83, 0x84, 0x85, 0x86, 0x8D, 0x8E, 0x95, 0x96, 0x97, 0x98, 0x99, 0x65, 0x66}
_same_number = _compute(2, lambda a, b: a == b)
_OPERATIONS: dict[int, Callable[[Machine], None]] = {
    0x69: Machine.verify,
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
    0xAC: Machine.check_signature,
    0xAD: _then_verify(Machine.check_signature),
    0xAE: Machine.check_signatures,
    0xAF: _then_verify(Machine.check_signatures),
    0xB1: Machine.lock_time,
    0xB2: Machine.sequence,
}
