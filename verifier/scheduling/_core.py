"""What the scheduler decides, without threads: what is launched next, where, and what a failure means.

Rules that everything here keeps:
- a batch runs on the one instance that its lease names, whatever device it is cut over or run again on;
- what a lost device had is run again, elsewhere where that is possible, at most `retries` times, within its deadline,
  and with nothing beside it on the device: whatever ended the device then ends it alone, costs no other batch a
  second try, and shows who did it;
- what nobody finished is UNDETERMINED, never invalid.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from verifier.errors import BackendError, DeadlineError, RequestError, StoppingError
from verifier.model import BatchKey, BatchResult
from verifier.scheduling._backlog import Backlog, QueueLimits
from verifier.scheduling._devices import Devices, DeviceState, Launch
from verifier.scheduling._ports import Device, Instance, Lease, LeaseSource
from verifier.scheduling._router import Load, Router
from verifier.scheduling._work import Piece, Work, units
from verifier.telemetry import Metrics
from verifier.workers import WorkerState

__all__ = ["Core", "Outcome", "SchedulingOptions"]

_LOOK_AGAIN_S = 0.1  # how soon a request without a live device is looked at again
_LEAST_RETRY_S, _MOST_RETRY_S = 0.01, 5.0
_LEAST_LAUNCH = 256  # units: cutting finer would cost more than it gives to whoever waits


@dataclass(frozen=True, slots=True)
class SchedulingOptions:
    """Settings of the scheduler."""

    queue: QueueLimits = field(default_factory=QueueLimits)
    batch_delay_s: float = 0.0  # how long a batch may wait for company; 0: only while devices are busy
    launch_items: int = 1 << 20  # of one launch
    launch_s: float = 0.01  # as long as a launch may take, by the cost model, and as much may be in flight before it
    launch_bytes: int = 48 << 20
    launches_per_device: int = 3  # in flight: copies in, kernels and copies out overlap
    retries: int = 2  # of a launch that failed
    unserved_wait_s: float = 10.0  # how long a request waits where none of its devices is up
    table_devices: tuple[str, ...] = ("auto",)  # that keep tables of enrolled keys; auto: all


@dataclass(slots=True)
class Outcome:
    """A request that is done with."""

    work: Work
    answer: BatchResult | Exception


@dataclass(slots=True, eq=False)
class _Again:
    """Pieces whose launch failed."""

    pieces: list[Piece]
    failures: int
    failed_on: frozenset[str]
    isolated: bool
    since: float  # when a device that they may run on was last seen


class Core:
    """Guarded by the scheduler's lock; tests drive it with a clock of their own."""

    def __init__(
        self, devices: Sequence[Device], lease: LeaseSource, options: SchedulingOptions, metrics: Metrics
    ) -> None:
        self._options = options
        self._lease = lease
        self._metrics = metrics
        self._devices = Devices(devices, options.launches_per_device, options.launch_s)
        self._again: list[_Again] = []
        self._deadlines: dict[Work, float] = {}
        self._next_deadline = float("inf")
        self._looked = float("-inf")  # when `next_launch` was asked last
        self._abandoned = False
        self.backlog = Backlog(options.queue, options.batch_delay_s, options.launch_items)
        self.router = Router()
        self.outcomes: list[Outcome] = []
        self.unserved = False  # the last look found a request without a live device

    def admit(self, work: Work) -> None:
        """Accepts a request. Raises CapacityError."""
        key = work.batch.key
        rate = measured = None
        held = self.backlog.held.get(key.plugin)
        if held is not None and held.requests:  # else there is nothing that a bound could be reached with
            up = [state.device.device for state in self._devices if state.device.state is WorkerState.UP]
            rate = self.router.rate(key, up) if up else None
            measured = rate if self.router.knows(key, up) else None
        self.backlog.admit(work, lambda: self._retry_after_s(key, rate), measured)
        if work.deadline is not None:
            self._deadlines[work] = work.deadline
            self._next_deadline = min(self._next_deadline, work.deadline)

    def _retry_after_s(self, key: BatchKey, rate: float | None) -> float:
        held = self.backlog.held.get(key.plugin)
        if held is None or rate is None:
            return _MOST_RETRY_S
        seconds = 0.5 * units(held.items, held.bytes) / rate
        return min(max(seconds, _LEAST_RETRY_S), _MOST_RETRY_S)

    def drop(self, work: Work) -> None:
        """The caller does not want the answer any more."""
        self.backlog.drop(work)
        self._settle(work, None)

    def abandon(self) -> None:
        """Gives up all that waits; what devices have is still finished, and not run again where that fails."""
        self._abandoned = True
        for again in self._again:
            self._put_all(again.pieces)
        self._again.clear()
        for work in self.backlog.works():
            self._give_up(work, StoppingError("the daemon stopped before this batch was begun"))

    def next_launch(self, now: float) -> Launch | None:
        """The next batch to run, or None where nothing waits or every device that should have it is busy."""
        self.unserved = False
        self._looked = now
        self._expire(now)
        launch = self._retry(now)
        if launch is not None:
            return launch
        # Where no device is up everybody is looked at: they wait for one only so long.
        room = self._any_room(now) or not self._any_up()
        if not room and not self._any_room(now, urgent=True):
            return None
        given_up = -1
        while given_up != len(self.outcomes):  # what was given up had others behind it
            given_up = len(self.outcomes)
            for work, waiting in list(self.backlog.heads(now)):
                if not room and not work.urgent:
                    break
                launch = self._begin(work, waiting, now)
                if launch is not None:
                    return launch
        return None

    def _any_up(self) -> bool:
        return any(state.device.state is WorkerState.UP for state in self._devices)

    def _any_room(self, now: float, *, urgent: bool = False) -> bool:
        return any(self._devices.has_room(state, now, urgent=urgent) for state in self._devices)

    def next_time(self) -> float:
        """When `next_launch` is worth another look though nothing has happened; infinity where never."""
        due = self.backlog.next_due(self._looked) if self._options.batch_delay_s else float("inf")
        return min(self._next_deadline, due)

    @property
    def waits(self) -> bool:
        """Whether something waits for a device."""
        return bool(self._again) or not self.backlog.empty

    def could_begin(self, now: float) -> bool:
        """Whether `next_launch` might find something now; False: something must happen first, or `next_time` come."""
        if not self.waits:
            return False
        if self._again or self.unserved or self._any_room(now) or not self._any_up():
            return True
        return self.backlog.urgent and self._any_room(now, urgent=True)

    @property
    def look_again_s(self) -> float | None:
        """Seconds after which to look again because devices are down."""
        return _LOOK_AGAIN_S if self.unserved or self._again else None

    def _begin(self, work: Work, waiting: int, now: float) -> Launch | None:
        if work.lease is None:
            try:
                work.lease = self._lease(work.batch.key)
            except Exception as error:
                self._give_up(work, error)
                return None
        instance = work.lease.instance
        states = self._suited(self._devices.up(instance), work.lease)
        if not states:
            self.unserved = True
            if not work.taken:
                # The next look leases whatever is active by then.
                work.lease.release()
                work.lease = None
            if now - work.accepted > self._options.unserved_wait_s:
                self._metrics.undetermined(work.batch.key.plugin, "no_device", work.waiting)
                self._give_up(work, None)
            return None
        key = work.batch.key
        total = units(waiting, work.batch.nbytes * waiting // work.batch.items)
        loads = [Load(state.device.device, self._ahead_s(state, work, now)) for state in states]
        for share in self.router.shares(key, total, loads):
            state = self._devices[share.device_id]
            if self._devices.has_room(state, now, urgent=work.urgent):
                most = self._most_units(state, key)
                items = -(-waiting * min(share.units, most) // total)
                pieces = self._take(work, instance, state.device, items, most)
                return self._launch(state, work.lease, pieces, now)
        return None

    def _ahead_s(self, state: DeviceState, work: Work, now: float) -> float:
        """Seconds of work that a launch waits for there."""
        return 0.0 if work.urgent and not state.device.device.unified else state.busy_s(now)

    def _most_units(self, state: DeviceState, key: BatchKey) -> int:
        """Units of one launch: whoever is more urgent waits for it to end."""
        cost = self.router.cost(state.device.device, key)
        if not cost.measured:
            return self._options.launch_items
        return max(cost.units(self._options.launch_s), _LEAST_LAUNCH)

    def _suited(self, states: list[DeviceState], lease: Lease) -> list[DeviceState]:
        """Those that keep tables, for what needs them; all where none of those is up: they say what they lack."""
        devices = self._options.table_devices
        if "auto" in devices:
            return states
        if lease.instance.manifest.operations[lease.operation_index].role != "enrolled":
            return states
        return [state for state in states if state.device.device.id in devices] or states

    def _take(self, head: Work, instance: Instance, device: Device, items: int, most: int) -> list[Piece]:
        """`items` go by the head's bytes an item; `most`, units of the launch, hold whatever is merged with it."""
        index = head.lease.operation_index if head.lease else 0
        output_bytes = sum(output.bytes for output in instance.manifest.operations[index].outputs)
        items = min(max(items, 1), self._options.launch_items)
        nbytes = self._options.launch_bytes
        while items > 1 and not device.fits(items, nbytes, output_bytes):
            items, nbytes = items // 2, max(nbytes // 2, min(head.batch.nbytes, self._options.launch_bytes))
        return self.backlog.take(head.batch.key, lambda work: self._leases(work, instance), items, nbytes, most)

    def _leases(self, work: Work, instance: Instance) -> bool:
        """Whether a request may run on this instance; it takes its lease here. After a swap the answer is no."""
        if work.lease is None:
            try:
                work.lease = self._lease(work.batch.key)
            except Exception:
                return False  # told to its caller when it is first in line
        return work.lease.instance.id == instance.id

    def _launch(
        self, state: DeviceState, lease: Lease, pieces: list[Piece], now: float, again: _Again | None = None
    ) -> Launch:
        key = pieces[0].work.batch.key
        size = sum(units(p.items, p.work.nbytes_between(p.begin, p.end)) for p in pieces)
        cost = self.router.cost(state.device.device, key)
        launch = Launch(state.device, lease, key, pieces, size, cost.seconds(size), now, not state.in_flight)
        if again is not None:
            launch.failures, launch.failed_on, launch.isolated = again.failures, again.failed_on, again.isolated
        state.in_flight.append(launch)
        state.starting += 1
        for piece in pieces:
            if piece.work.started is None:
                piece.work.started = now
        return launch

    def started(self, launch: Launch) -> None:
        """The device has the launch, and counts it in its room()."""
        self._devices[launch.device.device.id].starting -= 1

    def finished(self, launch: Launch, outcome: list[BatchResult] | BaseException, now: float) -> None:
        """Takes what a launch came to."""
        state = self._devices[launch.device.device.id]
        oldest = state.in_flight[0] is launch
        state.in_flight.remove(launch)
        if state.in_flight and (oldest or isinstance(outcome, BaseException)):
            # The next one waited for this one; and after a failure what is left of the rest began at the latest now.
            state.in_flight[0].begun = now
        if not isinstance(outcome, BaseException):
            # The device counts from where it was given the launch, and so in what was in front. Behind others it is
            # what came on top that tells how fast the device is; and nothing does of what has overtaken them.
            seconds = now - launch.begun
            if not launch.alone:
                seconds = min(seconds, outcome[0].timings.device_ns / 1e9)
            if launch.alone or not launch.urgent:
                self.router.observe(launch.device.device, launch.key, launch.units, seconds)
            for piece, result in zip(launch.pieces, outcome, strict=True):
                result.served_by = launch.lease.instance.label
                self._put(piece, result)
            return
        hopeless = self._abandoned or isinstance(outcome, DeadlineError | RequestError)
        if hopeless or launch.failures >= self._options.retries:
            self._put_all(launch.pieces)
            return
        failures = launch.failures + 1
        failed_on = launch.failed_on | {launch.device.device.id}
        isolated = isinstance(outcome, BackendError) and outcome.sticky
        # The last try is each request's own: one caller's poison then takes no other with it.
        whole = failures < self._options.retries
        groups = [launch.pieces] if whole else [[piece] for piece in launch.pieces]
        # In front of those of earlier launches, which are likelier to have done it.
        self._again[:0] = [_Again(pieces, failures, failed_on, isolated, now) for pieces in groups]

    def _retry(self, now: float) -> Launch | None:
        """The next launch of what has failed before. Devices that it waits for get nothing new meanwhile."""
        for state in self._devices:
            state.reserved = False
        # Those that failed least go first.
        for again in sorted(self._again, key=lambda again: again.failures):
            self._drop_late(again, now)
            if not again.pieces:
                self._again.remove(again)
                continue
            lease = again.pieces[0].work.lease
            assert lease is not None
            states = self._other_devices(lease, again, now)
            if states:
                again.since = now
            for state in (state for state in states if self._devices.has_room(state, now)):
                if again.isolated and state.in_flight:
                    state.reserved = True
                    break
                self._again.remove(again)
                return self._launch(state, lease, again.pieces, now, again)
        return None

    def _drop_late(self, again: _Again, now: float) -> None:
        """Leaves undecided what nobody waits for any more, and all of it where no device came in time."""
        over = now - again.since > self._options.unserved_wait_s
        dropped = [p for p in again.pieces if over or p.work.future.cancelled() or self._late(p.work, now)]
        if dropped:
            again.pieces = [piece for piece in again.pieces if piece not in dropped]
            self._put_all(dropped)

    def _other_devices(self, lease: Lease, again: _Again, now: float) -> list[DeviceState]:
        """Devices that have not failed on this piece, or those that have and were started anew; the best first."""
        up = self._suited(self._devices.up(lease.instance), lease)
        fresh = [state for state in up if state.device.device.id not in again.failed_on]
        loads = [Load(state.device.device, state.busy_s(now)) for state in fresh or up]
        items = sum(piece.items for piece in again.pieces)
        shares = self.router.shares(again.pieces[0].work.batch.key, items, loads)
        return [self._devices[share.device_id] for share in shares]

    def _late(self, work: Work, now: float) -> bool:
        return work.deadline is not None and work.deadline <= now

    def _expire(self, now: float) -> None:
        if now < self._next_deadline:
            return
        late = [work for work, deadline in self._deadlines.items() if deadline <= now]
        for work in late:
            del self._deadlines[work]
            if work.waiting and not work.closed:
                self._metrics.rejected(work.batch.key.plugin, "deadline")
                self._give_up(work, DeadlineError("the deadline passed while the batch waited"))
        self._next_deadline = min(self._deadlines.values(), default=float("inf"))

    def _give_up(self, work: Work, error: Exception | None) -> None:
        """Nothing more of a request is run: an error where nothing of it was, otherwise what there is."""
        untouched = not work.taken
        self.backlog.drop(work)
        self._settle(work, error if error is not None and untouched else None)

    def _put(self, piece: Piece, result: BatchResult | None) -> None:
        """Takes over a piece's result; None leaves its items undecided."""
        work = piece.work
        work.open_pieces -= 1
        if result is None:
            self._metrics.undetermined(work.batch.key.plugin, "device_failed", piece.items)
        else:
            work.put(piece.begin, result)
        self._settle(work, None)

    def _put_all(self, pieces: Sequence[Piece]) -> None:
        for piece in pieces:
            self._put(piece, None)

    def _settle(self, work: Work, answer: BatchResult | Exception | None) -> None:
        if work.settled or work.open_pieces or (work.waiting and not work.closed):
            return
        work.settled = True
        self._deadlines.pop(work, None)
        self.backlog.release(work)
        self.outcomes.append(Outcome(work, work.result() if answer is None else answer))
