"""Several daemons that do the same work: which one a request goes to, and which are left alone for a while.

Each has a channel of its own, so that "elsewhere" can be said. The channel watches the daemon's health service
(gRPC's client-side health checking): one that drains, or that serves nothing, is not ready, and gets no request. A
replica that failed, or that gave an answer with undecided items, is left alone for a growing time.
"""

from __future__ import annotations

import ipaddress
import logging
import socket
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from node_adapter.errors import ReplicasError, RequestError

__all__ = ["Address", "Lookup", "Replica", "Replicas", "addresses", "check_one", "check_same_plugins", "is_one"]

_log = logging.getLogger(__name__)

_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.5, 30.0


@dataclass(frozen=True, slots=True)
class Address:
    """Where one daemon is, as a gRPC target; `name` is what its certificate must be for, "" being the target."""

    target: str
    name: str = ""


@dataclass(eq=False, slots=True)
class Replica:
    """One daemon. `ready` says whether its channel is connected and its health service says SERVING."""

    address: Address
    channel: Any
    stub: Any
    ready: Callable[[], bool]
    failures: int = 0
    away_until: float = 0.0


def addresses(target: str) -> list[Address]:
    """The daemons that a target names.

    "ipv4:10.0.0.1:50051,10.0.0.2:50051" (ipv6 alike) names several; "dns:///verifier:50051" is looked up, all its
    addresses being daemons. Any other target is one daemon. Raises RequestError where the target names none, and
    OSError where the name cannot be looked up.
    """
    scheme, colon, rest = target.partition(":")
    if colon and scheme in ("ipv4", "ipv6"):
        found = [Address(f"{scheme}:{part.strip()}") for part in rest.split(",") if part.strip()]
    elif target.startswith("dns:///"):
        host, _, port = target.removeprefix("dns:///").rpartition(":")
        if not host or not port.isdecimal():
            raise RequestError("target", f"{target!r}: dns:///HOST:PORT is expected")
        known = {entry[4][0] for entry in socket.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_STREAM)}
        found = [Address(_numeric(str(address), port), host) for address in sorted(map(str, known))]
    else:
        found = [Address(target)]
    if not found:
        raise RequestError("target", f"{target!r} names no daemon")
    return found


def is_one(target: str) -> bool:
    """Whether a target is one daemon by its form."""
    scheme, _, rest = target.partition(":")
    return not target.startswith("dns:///") and not (scheme in ("ipv4", "ipv6") and "," in rest)


def check_one(what: str, target: str) -> None:
    """Raises RequestError where what belongs to one daemon goes with a target that may be several."""
    if not is_one(target):
        raise RequestError(what, f"belongs to one daemon, and {target} may be several: name that daemon's address")


def _numeric(address: str, port: str) -> str:
    if ipaddress.ip_address(address.partition("%")[0]).version == 6:
        return f"ipv6:[{address}]:{port}"
    return f"ipv4:{address}:{port}"


@dataclass(slots=True)
class Replicas:
    """The daemons of a client, in turn. Thread-safe."""

    make: Callable[[Address], Replica]
    clock: Callable[[], float] = time.monotonic
    _replicas: list[Replica] = field(default_factory=list)
    _turn: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def update(self, found: Sequence[Address]) -> list[Replica]:
        """Makes these the daemons. Gives those that are none any more, for their channels to be closed."""
        with self._lock:
            kept = {replica.address: replica for replica in self._replicas if replica.address in found}
            gone = [replica for replica in self._replicas if replica.address not in found]
            self._replicas = [kept.get(address) or self.make(address) for address in found]
        return gone

    @property
    def all(self) -> list[Replica]:
        """Every daemon."""
        return list(self._replicas)

    @property
    def several(self) -> bool:
        """Whether there is more than one."""
        return len(self._replicas) > 1

    def pick(self, avoid: Collection[Replica] = ()) -> Replica:
        """The next one in turn: one that is ready and not left alone and not in `avoid`, if there is such a one."""
        if len(only := self._replicas) == 1:
            return only[0]
        with self._lock:
            self._turn += 1
            start = self._turn % len(self._replicas)
            order = self._replicas[start:] + self._replicas[:start]
        return min(order, key=lambda replica: self._reluctance(replica, avoid))

    def elsewhere(self, avoid: Collection[Replica]) -> bool:
        """Whether there is one that is ready and not left alone, besides those in `avoid`."""
        return any(self._reluctance(replica, avoid) == 0 for replica in self.all)

    def patience_s(self, replica: Replica, attempt: int, left_s: float) -> float:
        """How long to wait for an answer: half of what is left where there is somebody else to ask after that.

        A daemon that hangs would otherwise take the whole deadline. It drops the work when its half is over.
        """
        return left_s / 2 if attempt == 0 and self.several and self.elsewhere({replica}) else left_s

    def failed(self, replica: Replica, why: str) -> None:
        """Leaves a replica alone: half a second at first, twice as long each time, half a minute at most."""
        with self._lock:
            pause = min(_LONGEST_PAUSE_S, _FIRST_PAUSE_S * 2 ** min(replica.failures, 10))
            replica.failures += 1
            replica.away_until = self.clock() + pause
        if self.several:
            _log.warning("%s is left alone for %g s: %s", replica.address.target, pause, why)

    def full(self, replica: Replica, asked_s: float) -> None:
        """Leaves a replica alone for the time that it asks for, half a minute at most."""
        replica.away_until = self.clock() + min(asked_s, _LONGEST_PAUSE_S)

    def answered(self, replica: Replica) -> None:
        """It gave an answer that is whole."""
        replica.failures = 0
        replica.away_until = 0.0

    def _reluctance(self, replica: Replica, avoid: Collection[Replica]) -> int:
        if len(self._replicas) == 1:
            return 4 if replica in avoid else 0
        return 4 * (replica in avoid) + 2 * (not replica.ready()) + (replica.away_until > self.clock())


class Lookup:
    """Keeps the daemons of a "dns:///" target what the name service says; `close` is given those that are gone."""

    def __init__(
        self,
        target: str,
        replicas: Replicas,
        close: Callable[[Replica], None],
        *,
        every_s: float = 30.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._target = target
        self._replicas = replicas
        self._close = close
        self._every_s = every_s
        self._clock = clock
        self._gone: list[Replica] = []
        try:
            found = addresses(target)
        except OSError:  # not yet known: gRPC goes on asking, for one daemon
            found = [Address(target)]
        replicas.update(found)
        self._next = clock() + every_s

    def due(self) -> bool:
        """Whether it is time to look again; says so once."""
        if not self._target.startswith("dns:///") or self._clock() < self._next:
            return False
        self._next = self._clock() + self._every_s
        return True

    def find(self) -> list[Address]:
        """What the name service says now; it may take a while. Empty where it does not answer."""
        try:
            return addresses(self._target)
        except OSError:
            return []

    def take(self, found: Sequence[Address]) -> None:
        """Makes these the daemons. Channels of those that went the time before are closed: their calls are over."""
        for replica in self._gone:
            self._close(replica)
        self._gone = self._replicas.update(found) if found else []

    def every(self) -> list[Replica]:
        """All replicas that may have an open channel."""
        return self._replicas.all + self._gone


def check_same_plugins(answers: Mapping[str, Any]) -> None:
    """Raises ReplicasError where daemons (GetLimitsResponse by target) serve an operation by different plugins."""
    served: dict[str, dict[str, list[str]]] = {}
    for target, answer in answers.items():
        for entry in answer.operations:
            name = f"{entry.operation} {entry.algorithm}"
            what = f"{entry.served_by.partition('#')[0]} ({entry.digest[:12]})"
            served.setdefault(name, {}).setdefault(what, []).append(target)
    for name, plugins in served.items():
        missing = [target for target in answers if not any(target in targets for targets in plugins.values())]
        if missing:
            plugins["none"] = missing
        if len(plugins) > 1:
            told = "; ".join(f"{what} at {', '.join(targets)}" for what, targets in plugins.items())
            raise ReplicasError(f"{name} is served by different plugins: {told}")
