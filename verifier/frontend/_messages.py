"""What a front end and the core say to each other.

The front end faces the network, so what it sends is data with a schema and nothing that is executed.
"""

from __future__ import annotations

import msgspec

__all__ = [
    "Answer",
    "Call",
    "Cancel",
    "Counts",
    "Denied",
    "Drain",
    "FromCore",
    "FromFrontEnd",
    "Listening",
    "Served",
    "Span",
]


class Span(msgspec.Struct, array_like=True, frozen=True):
    """Where one column lies in the front end's region. 0 bytes of offsets: it has none."""

    name: str
    data: int
    data_bytes: int
    offsets: int
    offsets_bytes: int


class Call(msgspec.Struct, tag=1, array_like=True, frozen=True):
    """To the core: a request whose columns lie in the region. Answered by Answer, whatever happens."""

    id: int
    rpc: str
    message: bytes  # the request without its columns
    spans: tuple[Span, ...]
    begin: int  # of the place that all columns lie in, where a long answer may go
    nbytes: int
    deadline: float | None  # time.monotonic(), which is the machine's and so both processes'
    caller: str
    digested: bool = False  # the front end puts the columns' digest into the answer


class Cancel(msgspec.Struct, tag=2, array_like=True, frozen=True):
    """To the core: nobody waits for this call any more."""

    id: int


class Listening(msgspec.Struct, tag=3, array_like=True, frozen=True):
    """To the core, once: calls are accepted at these addresses; or the error that prevents it."""

    addresses: tuple[str, ...] = ()
    problem: str = ""


class Denied(msgspec.Struct, array_like=True, frozen=True):
    """A refusal that the audit is told of."""

    caller: str
    method: str
    role: str


class Counts(msgspec.Struct, tag=4, array_like=True, frozen=True):
    """To the core, once a second: what was counted since the last time, and the calls being handled now."""

    requests: list[tuple[str, str, int]] = []  # RPC, status, how often
    denials: list[tuple[str, str, int]] = []  # role, reason, how often
    audit: list[Denied] = []
    tls: tuple[bool, float] | None = None  # the last reading of the certificates: taken over, when they expire
    in_flight: dict[str, int] = {}  # by RPC
    refused: int = 0  # requests refused without asking the core


class Answer(msgspec.Struct, tag=5, array_like=True, frozen=True):
    """To the front end: what became of a call. Its place is free from now on, once the answer is taken out of it."""

    id: int
    code: int  # of gRPC; 0: OK
    message: str = ""
    field: str | None = None
    retry_after_s: float | None = None
    body: bytes = b""  # the response; or where it is empty
    body_bytes: int = 0  # so many bytes at the beginning of the call's place


class Served(msgspec.Struct, tag=6, array_like=True, frozen=True):
    """To the front end: which operations have a device now, for its health service."""

    operations: dict[str, bool]
    stopping: bool = False


class Drain(msgspec.Struct, tag=7, array_like=True, frozen=True):
    """To the front end: read no more requests. `stop`: all that was accepted is answered, so end."""

    stop: bool = False


FromFrontEnd = Call | Cancel | Listening | Counts
FromCore = Answer | Served | Drain
