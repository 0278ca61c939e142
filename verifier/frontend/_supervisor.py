"""The front ends of a daemon, seen from the core: started, replaced when they end, drained and stopped together."""

from __future__ import annotations

import contextlib
import pickle
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from multiprocessing.connection import Connection

import structlog

from verifier.api import Operations
from verifier.channel import Channel
from verifier.config import Settings
from verifier.errors import BackendError, ConfigError
from verifier.frontend._child import Setup
from verifier.frontend._messages import Counts, Drain, FromCore, FromFrontEnd, Listening, Served
from verifier.frontend._ports import HeldPorts
from verifier.frontend._session import Session
from verifier.frontend._totals import FrontEndTotals
from verifier.regions import Region
from verifier.spawn import spawn
from verifier.telemetry import Metrics

__all__ = ["FrontEnds"]

_log = structlog.get_logger(__name__)

_START_S = 60.0
_STOP_S = 10.0
_BACK_OFF_S, _LONGEST_BACK_OFF_S, _SOUND_S = 0.05, 5.0, 30.0


class FrontEnds:
    """`count` processes that share the ports of `settings.server.listen`, of which a Unix socket belongs to one; and
    one more for `settings.server.urgent_listen`, where that has addresses.

    `core` is the gRPC target of the core's own server; `unmap` has workers let go of a region.
    """

    def __init__(
        self,
        settings: Settings,
        count: int,
        core: str,
        operations: Operations,
        unmap: Callable[[int], None],
        metrics: Metrics,
        on_denied: Callable[[str, str, str], None],
    ) -> None:
        self.settings = settings
        self.core = core
        self.operations = operations
        self.unmap = unmap
        self.metrics = metrics
        self.totals = FrontEndTotals(metrics)
        self.on_denied = on_denied
        self.stopping = threading.Event()
        self._served = Served({})
        self._draining = False
        self._lock = threading.Lock()
        self._up: set[int] = set()
        self._ports = contextlib.ExitStack()
        self.addresses = self._hold(settings.server.listen if count else (), "server.listen")
        self.urgent_addresses = self._hold(settings.server.urgent_listen, "server.urgent_listen")
        unix = [address for address in self.addresses if address.startswith("unix:")]
        shared = tuple(address for address in self.addresses if not address.startswith("unix:"))
        self._front_ends = [
            _FrontEnd(self, number, "server.listen", (*shared, *unix[number::count])) for number in range(count)
        ]
        if self.urgent_addresses:
            self._front_ends.append(_FrontEnd(self, count, "server.urgent_listen", self.urgent_addresses))

    def _hold(self, addresses: Sequence[str], setting: str) -> tuple[str, ...]:
        try:
            ports = HeldPorts(addresses, setting)
        except ConfigError:
            self._ports.close()
            raise
        self._ports.callback(ports.close)
        return ports.addresses

    def start(self) -> None:
        """Returns when all accept calls. Raises ConfigError, BackendError; nothing runs then."""
        try:
            for front_end in self._front_ends:
                front_end.start()
            for front_end in self._front_ends:
                front_end.first.result(_START_S)
        except BaseException:
            self.stop()
            raise

    @property
    def pids(self) -> list[int]:
        """Their processes, in order; those that are being replaced are left out."""
        return [front_end.pid for front_end in self._front_ends if front_end.pid is not None]

    def served(self, operations: Mapping[str, bool], stopping: bool = False) -> None:
        """Which operations have a device now."""
        with self._lock:
            self._served = Served(dict(operations), stopping)
        self._send(self._served)

    def drain(self) -> None:
        """Streams are not read any further; the scheduler refuses what still comes."""
        with self._lock:
            self._draining = True
        self._send(Drain())

    def stop(self) -> None:
        """Ends all, behind the answers that are ready. Bounded in time; idempotent."""
        self.stopping.set()
        self._send(Drain(stop=True))
        end = time.monotonic() + _STOP_S
        for front_end in self._front_ends:
            front_end.join(max(0.0, end - time.monotonic()))
        self._ports.close()

    def _send(self, message: FromCore) -> None:
        for front_end in self._front_ends:
            front_end.send(message)

    def greet(self, session: Session) -> None:
        """Tells a new front end how things are."""
        with self._lock:
            session.send(self._served)
            if self._draining:
                session.send(Drain())

    def changed(self, number: int, *, up: bool) -> None:
        """A front end accepts calls, or does not any more."""
        with self._lock:
            if up:
                self._up.add(number)
            else:
                self._up.discard(number)
            self.metrics.front_ends(len(self._up))


class _FrontEnd:
    """One front end, whichever process that is now."""

    def __init__(self, owner: FrontEnds, number: int, setting: str, addresses: tuple[str, ...]) -> None:
        self._owner = owner
        self._number = number
        self._setting = setting
        self._addresses = addresses
        self._process: subprocess.Popen[bytes] | None = None
        self._session: Session | None = None
        self._thread = threading.Thread(target=self._run, name=f"front-end {number} supervisor", daemon=True)
        self.first: Future[None] = Future()

    @property
    def pid(self) -> int | None:
        """Its process."""
        process = self._process
        return None if process is None else process.pid

    def start(self) -> None:
        """Starts it; `first` is done when it accepts calls."""
        self._thread.start()

    def send(self, message: FromCore) -> None:
        """Sends a message, where there is a process to send it to."""
        session = self._session
        if session is not None:
            session.send(message)

    def join(self, timeout_s: float) -> None:
        """Waits for its end, and kills it where that takes too long."""
        process = self._process
        if process is not None:
            try:
                process.wait(timeout_s)
            except subprocess.TimeoutExpired:
                _log.warning("front_end_killed", front_end=self._number, pid=process.pid)
                process.kill()
        if self._thread.ident is not None:
            self._thread.join(_STOP_S)

    def _run(self) -> None:
        delay = _BACK_OFF_S
        while not self._owner.stopping.is_set():
            begun = time.monotonic()
            try:
                self._live()
            except Exception as error:
                # No memory or no process just now, for instance: a front end that nobody tries again stays away.
                _log.exception("front_end_not_started", front_end=self._number)
                self._not_up(BackendError(f"front end {self._number} cannot be started: {error}"))
            if self._owner.stopping.is_set():
                break
            self._owner.metrics.front_end_lost()
            delay = _BACK_OFF_S if time.monotonic() - begun > _SOUND_S else min(2 * delay, _LONGEST_BACK_OFF_S)
            self._owner.stopping.wait(delay)

    def _live(self) -> None:
        """One process, from its start to its end."""
        region_bytes = self._owner.settings.server.region_bytes
        region = Region.create(region_bytes, lambda gone: self._owner.unmap(gone.id))
        ours, theirs = socket.socketpair()
        with ours, theirs:
            try:
                process = self._spawn(theirs, region)
            except BaseException:
                region.retire()
                raise
            connection = Connection(ours.detach())
        setup = Setup(self._owner.settings, self._setting, self._addresses, self._owner.core, region_bytes)
        with contextlib.suppress(OSError):  # it has ended already: the session sees it too
            connection.send_bytes(pickle.dumps(setup))
        channel = Channel(connection, FromFrontEnd)
        session = Session(channel, region, self._owner.operations, self._take, lambda: None)
        self._process, self._session = process, session
        session.start()
        self._owner.greet(session)
        if self._owner.stopping.is_set():
            session.send(Drain(stop=True))
        session.join()
        process.kill()  # one that lives on, having sent rubbish, would accept calls that nobody reads any more
        status = process.wait()
        self._session = self._process = None
        channel.close()
        self._owner.changed(self._number, up=False)
        self._owner.totals.lost(self._number)
        if not self._owner.stopping.is_set():
            _log.warning("front_end_lost", front_end=self._number, pid=process.pid, status=status)
        self._not_up(BackendError(f"front end {self._number} ended while it started"))

    def _not_up(self, error: Exception) -> None:
        if not self.first.done():
            self.first.set_exception(error)

    def _spawn(self, theirs: socket.socket, region: Region) -> subprocess.Popen[bytes]:
        fds = (theirs.fileno(), region.fd)
        title = f"verifier-front-end {self._number}"
        return spawn("verifier.frontend._child", title, fds, GRPC_ENABLE_FORK_SUPPORT="0")

    def _take(self, message: Listening | Counts) -> None:
        if isinstance(message, Counts):
            self._owner.totals.add(self._number, message)
            for denial in message.audit:
                self._owner.on_denied(denial.caller, denial.method, denial.role)
        elif message.problem:
            if not self.first.done():
                self._not_up(ConfigError(message.problem))
            else:
                _log.error("front_end_not_started", front_end=self._number, problem=message.problem)
        else:
            self._owner.changed(self._number, up=True)
            _log.info("front_end_up", front_end=self._number, pid=self.pid, addresses=list(message.addresses))
            if not self.first.done():
                self.first.set_result(None)
