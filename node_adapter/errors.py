"""Every error that the node adapter raises on purpose.

AdapterError
├── RequestError        the caller's columns or scheme are wrong; nothing was sent
├── RefusedError        the daemon refuses this batch, now and later
│   └── NotServedError  it has no active plugin for the scheme
├── AuthenticationError a message's tag is wrong: nothing of it is given
├── ReplicasError       the daemons of a target do not serve the same plugins
├── AnswerError         an answer does not fit its question; nothing in it is used
├── UndecidedError      some items have no verdict; `result` holds what is known
│   ├── DeadlineError     the time was over first
│   ├── CapacityError     the daemon stayed full
│   └── UnavailableError  no daemon could be reached, or it failed
├── FormatError         bytes are not what their format says; names the offset
├── LedgerError         a ledger file is not what its schema says; names the column
└── ChainError          the simulated chain came to a state that its rules exclude
"""

from __future__ import annotations

from typing import Any

__all__ = [
    "AdapterError",
    "AnswerError",
    "AuthenticationError",
    "CapacityError",
    "ChainError",
    "DeadlineError",
    "FormatError",
    "LedgerError",
    "NotServedError",
    "RefusedError",
    "ReplicasError",
    "RequestError",
    "UnavailableError",
    "UndecidedError",
]


class AdapterError(Exception):
    """Base of every error raised on purpose."""


class RequestError(AdapterError):
    """The caller's columns or scheme are wrong; the text names the field and the limit."""

    def __init__(self, field: str, problem: str) -> None:
        super().__init__(f"{field}: {problem}")
        self.field = field
        self.problem = problem


class RefusedError(AdapterError):
    """The daemon refuses this batch; sending it again would not help. `code` is the gRPC status name."""

    def __init__(self, code: str, problem: str) -> None:
        super().__init__(f"{code}: {problem}")
        self.code = code
        self.problem = problem


class NotServedError(RefusedError):
    """The daemon has no active plugin for the operation and scheme."""


class AuthenticationError(AdapterError):
    """A message's tag is wrong: it, its nonce, its key or what was authenticated with it was changed."""


class ReplicasError(AdapterError):
    """The daemons of a target do not serve the same plugins; the text names who serves what."""


class AnswerError(AdapterError):
    """An answer does not fit its question: another id or count, bitmaps of a wrong size, contradicting parts."""


class UndecidedError(AdapterError):
    """Some items have no verdict. They are not invalid: `result` holds the verdicts of all others."""

    def __init__(self, problem: str) -> None:
        super().__init__(problem)
        self.result: Any = None


class DeadlineError(UndecidedError):
    """The deadline passed before every item was decided."""


class CapacityError(UndecidedError):
    """The daemon's queues stayed full over every attempt."""


class UnavailableError(UndecidedError):
    """No daemon could be reached, or it failed, over every attempt."""


class FormatError(AdapterError):
    """Bytes are not what their format says; `offset` is where in the file."""

    def __init__(self, offset: int, problem: str) -> None:
        super().__init__(f"at byte {offset}: {problem}")
        self.offset = offset
        self.problem = problem


class LedgerError(AdapterError):
    """A ledger file is not what its schema says; `part` is the column or metadata entry that is wrong."""

    def __init__(self, part: str, problem: str) -> None:
        super().__init__(f"{part}: {problem}")
        self.part = part
        self.problem = problem


class ChainError(AdapterError):
    """The simulated chain came to a state that its rules exclude."""
