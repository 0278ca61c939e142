"""The machine that Bitcoin's scripts run on: its stacks, and the operations that ask more than values of them."""

from __future__ import annotations

from dataclasses import dataclass, field

from node_adapter.formats._script import ScriptError, strictly_encoded, truth

__all__ = ["MOST_VALUE_BYTES", "Check", "Context", "Machine", "flag"]

MOST_VALUE_BYTES = 520  # of a value that is pushed, or shown to a witness script
_MOST_OPERATIONS, _MOST_KEYS = 201, 20
_LOCKS_BY_TIME = 500_000_000  # BIP 65: less is a height
_RELATIVE_OFF, _RELATIVE_BY_TIME, _RELATIVE_MASK = 1 << 31, 1 << 22, 1 << 22 | 0xFFFF  # BIP 68
_FINAL = 0xFFFFFFFF
_KEYS = {33: (b"\2", b"\3"), 65: (b"\4", b"\6", b"\7")}  # first bytes by length


@dataclass(frozen=True, slots=True)
class Context:
    """What scripts ask of the transaction and of their input in it, and which rules hold."""

    version: int = 1
    lock_time: int = 0
    sequence: int = 0
    strict_der: bool = False  # BIP 66
    by_lock_time: bool = False  # BIP 65
    by_sequence: bool = False  # BIP 112
    null_dummy: bool = False  # BIP 147


@dataclass(frozen=True, slots=True)
class Check:
    """Signatures that must be by different ones of the keys, in their order, over `script` (one of each: CHECKSIG).

    `script` is that from the last OP_CODESEPARATOR on that was run.
    """

    signatures: tuple[bytes, ...]
    keys: tuple[bytes, ...]
    script: bytes


@dataclass(slots=True)
class Machine:
    """A script, and the two stacks and the branches that it has come to."""

    script: bytes
    stack: list[bytes]
    context: Context
    other: list[bytes] = field(default_factory=list)
    branches: list[bool] = field(default_factory=list)
    checks: list[Check] = field(default_factory=list)
    begin: int = 0  # behind the last separator
    count: int = 0  # of operations, and of keys that signatures were checked with

    def branch(self, code: int, running: bool) -> None:
        """An IF, a NOTIF, an ELSE or an ENDIF; `running`: all around it runs."""
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

    def counted(self, operations: int) -> None:
        self.count += operations
        if self.count > _MOST_OPERATIONS:
            raise ScriptError(f"more than {_MOST_OPERATIONS} operations")

    def number(self, most_bytes: int = 4) -> int:
        """The last value as a number of at most so many bytes, little-endian with a sign bit."""
        value = self.stack.pop()
        if len(value) > most_bytes:
            raise ScriptError(f"a number of {len(value)} bytes; at most {most_bytes} are allowed")
        if not value:
            return 0
        size = int.from_bytes(value[:-1] + bytes([value[-1] & 0x7F]), "little")
        return -size if value[-1] & 0x80 else size

    def verify(self) -> None:
        if not truth(self.stack.pop()):
            raise ScriptError("a condition of the script is not met")

    def check_signature(self) -> None:
        signature, key = self.pop(2)
        good = bool(signature) and _may_be_key(key)
        if good:
            self.checks.append(Check((signature,), (key,), self.script[self.begin :]))
        elif signature:
            self.not_valid([signature])
        self.stack.append(flag(good))

    def check_signatures(self) -> None:
        total = self.number()
        if not 0 <= total <= _MOST_KEYS:
            raise ScriptError(f"{total} keys; 0 to {_MOST_KEYS} are allowed")
        self.counted(total)
        keys = self.pop(total)
        wanted = self.number()
        if not 0 <= wanted <= total:
            raise ScriptError(f"{wanted} signatures by {total} keys")
        signatures = self.pop(wanted)
        dummy = self.stack.pop()  # one value too many, since the first implementation
        if dummy and self.context.null_dummy:
            raise ScriptError("the value below the signatures is not empty (BIP 147)")
        if wanted and all(signatures):
            self.checks.append(Check(tuple(signatures), tuple(keys), self.script[self.begin :]))
        elif b"" in signatures:
            self.not_valid(
                signatures[wanted - signatures[::-1].index(b"") :]
            )  # checked from the last to the empty one
        self.stack.append(flag(all(signatures)))

    def not_valid(self, signatures: list[bytes]) -> None:
        """Signatures that need not be asked about: they still have to be encoded as the rules say."""
        if self.context.strict_der and not all(map(strictly_encoded, signatures)):
            raise ScriptError("a signature is not in strict DER (BIP 66)")

    def lock_time(self) -> None:
        """BIP 65: fails where the transaction may be mined before the time on the stack."""
        if not self.context.by_lock_time:
            return
        told, given = self._lock(), self.context.lock_time
        if (told < _LOCKS_BY_TIME) != (given < _LOCKS_BY_TIME):
            raise ScriptError(f"lock times {told} and {given}, of which one is a height")
        if told > given:
            raise ScriptError(f"locked until {told}; the transaction's lock time is {given}")
        if self.context.sequence == _FINAL:
            raise ScriptError(f"locked until {told}; the input's sequence switches lock times off")

    def sequence(self) -> None:
        """BIP 112: fails where the input may be mined sooner behind what it spends than the stack says."""
        if not self.context.by_sequence:
            return
        told, given = self._lock(), self.context.sequence
        if told & _RELATIVE_OFF:
            return
        if self.context.version < 2 or given & _RELATIVE_OFF:
            raise ScriptError(f"locked for {told}; the input has no relative lock time")
        told, given = told & _RELATIVE_MASK, given & _RELATIVE_MASK
        if (told < _RELATIVE_BY_TIME) != (given < _RELATIVE_BY_TIME):
            raise ScriptError(f"relative lock times {told} and {given}, of which one counts blocks")
        if told > given:
            raise ScriptError(f"locked for {told}; the input's sequence is {given}")

    def _lock(self) -> int:
        value = self.stack[-1]
        told = self.number(most_bytes=5)
        self.stack.append(value)
        if told < 0:
            raise ScriptError(f"a lock time of {told}")
        return told


def _may_be_key(key: bytes) -> bool:
    """Whether these bytes have the form of a key: by others no signature is ever valid."""
    return key[:1] in _KEYS.get(len(key), ())


def flag(value: bool) -> bytes:
    return b"\1" if value else b""
