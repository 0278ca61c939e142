"""What waits: bounded by plugin, ordered by class, and fair between callers within a class.

The order is start-time fair queueing (Goyal, Vin, Cheng: "Start-time fair queueing", 1997): a request's tag is the
larger of its class's virtual time and the end of its caller's previous request, and the smallest tag goes next. A
caller with a thousand requests waiting therefore delays another's first one by about one batch.

Requests of one batch key share a heap, so that a launch takes what waits with an equal key in that order.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from verifier.errors import CapacityError
from verifier.model import BatchKey
from verifier.scheduling._work import CUT_ITEMS, Piece, Priority, Work, units

__all__ = ["Backlog", "Held", "QueueLimits"]

# Shares of a plugin's bound that a class may fill: bulk work never keeps consensus out.
_CLASS_SHARE = {Priority.CONSENSUS: 1.0, Priority.BLOCK: 0.95, Priority.POOL: 0.9, Priority.BULK: 0.75}


@dataclass(frozen=True, slots=True)
class QueueLimits:
    """Bounds of one plugin's accepted and unanswered work."""

    items: int = 8 << 20
    bytes: int = 1 << 30
    seconds: float = 30.0  # of work, where the devices' rate is measured
    caller_share: float = 0.5  # of either bound, for one caller


@dataclass(slots=True)
class Held:
    """Accepted and not answered, in items and bytes."""

    requests: int = 0
    items: int = 0
    bytes: int = 0

    def add(self, work: Work, sign: int = 1) -> None:
        """Counts a request in, or out with sign -1."""
        self.requests += sign
        self.items += sign * work.batch.items
        self.bytes += sign * work.batch.nbytes


@dataclass(slots=True)
class _Class:
    """Virtual time of a priority class, where each caller's last request in it ends, and what is not answered."""

    now: float = 0.0
    ends: dict[str, float] = field(default_factory=dict)
    held: dict[tuple[str, str | None], Held] = field(default_factory=dict)  # by plugin and caller; None: all callers

    def count(self, work: Work, sign: int = 1) -> None:
        """Counts a request in, or out with sign -1."""
        plugin = work.batch.key.plugin
        for key in ((plugin, None), (plugin, work.caller)):
            held = self.held.get(key)
            if held is None:
                held = self.held[key] = Held()
            held.add(work, sign)
            if not held.requests:
                del self.held[key]


@dataclass(slots=True)
class _KeyQueue:
    """What waits with one batch key: a heap of (class, tag, sequence, work)."""

    heap: list[tuple[int, float, int, Work]] = field(default_factory=list)
    closed: int = 0  # entries whose work was answered, cancelled or expired meanwhile
    items: int = 0
    urgent_items: int = 0  # of these
    oldest: float = 0.0  # when the first of those that wait now was accepted

    def head(self) -> Work | None:
        while self.heap and self.heap[0][3].closed:
            heapq.heappop(self.heap)
            self.closed -= 1
        return self.heap[0][3] if self.heap else None

    def count(self, work: Work, items: int) -> None:
        """Counts items of a request in, or out where they are fewer than 0."""
        self.items += items
        if work.urgent:
            self.urgent_items += items

    def drop_closed(self) -> None:
        """Lets go of closed work once it is most of the heap: its columns must not outlive its answer for long."""
        if self.closed * 2 > len(self.heap):
            self.heap = [entry for entry in self.heap if not entry[3].closed]
            heapq.heapify(self.heap)
            self.closed = 0


class Backlog:
    """Guarded by the scheduler's lock; it has no lock, thread or clock of its own."""

    def __init__(self, limits: QueueLimits, delay_s: float, full_items: int) -> None:
        self._limits = limits
        self._delay_s = delay_s
        self._full_items = full_items
        self._queues: dict[BatchKey, _KeyQueue] = {}
        self._classes = {priority: _Class() for priority in Priority}
        self._sequence = itertools.count()
        self._callers: dict[tuple[str, str], Held] = {}
        self.held: dict[str, Held] = {}  # by plugin

    def admit(self, work: Work, retry_after_s: Callable[[], float], rate: float | None = None) -> None:
        """Accepts a request and puts it in line. `rate` is what the devices do, units a second, where measured;
        `retry_after_s` is asked when it is refused.

        Raises CapacityError naming the bound; nothing is changed then.
        """
        plugin = work.batch.key.plugin
        held = self.held.setdefault(plugin, Held())
        caller = self._callers.get((plugin, work.caller), Held())
        share, limits = _CLASS_SHARE[work.priority], self._limits
        for whose, has, part in (
            (f"the queue of {plugin}", held, share),
            (f"the caller's share of the queue of {plugin}", caller, limits.caller_share),
        ):
            if not has.requests:
                continue  # an empty queue takes any request that the daemon's limits allow
            for what, now, more, bound in (
                ("items", has.items, work.batch.items, limits.items * part),
                ("bytes", has.bytes, work.batch.nbytes, limits.bytes * part),
            ):
                if now + more > bound:
                    raise CapacityError(f"{whose} is full: {now} of {int(bound)} {what}", retry_after_s())
        if rate:
            self._check_time(work, rate, retry_after_s)
        self._classes[work.priority].count(work)
        held.add(work)
        self._callers.setdefault((plugin, work.caller), caller).add(work)
        order = self._classes[work.priority]
        work.tag = max(order.now, order.ends.get(work.caller, 0.0))
        order.ends[work.caller] = work.tag + units(work.batch.items, work.batch.nbytes)
        self._push(work)

    def _check_time(self, work: Work, rate: float, retry_after_s: Callable[[], float]) -> None:
        """Seconds of work, of which only what is as urgent counts: the rest waits behind this request."""
        plugin, limit = work.batch.key.plugin, self._limits.seconds
        as_urgent = [order for priority, order in self._classes.items() if priority <= work.priority]
        more = units(work.batch.items, work.batch.nbytes) / rate
        for whose, caller, bound in (
            (f"the queue of {plugin}", None, limit),
            (f"the caller's share of the queue of {plugin}", work.caller, limit * self._limits.caller_share),
        ):
            ahead = [order.held[plugin, caller] for order in as_urgent if (plugin, caller) in order.held]
            seconds = sum(units(held.items, held.bytes) for held in ahead) / rate
            if ahead and seconds + more > bound:
                raise CapacityError(f"{whose} is full: {seconds:.1f} of {bound:.1f} s of work", retry_after_s())

    def _push(self, work: Work) -> None:
        queue = self._queues.setdefault(work.batch.key, _KeyQueue())
        if not queue.items:
            queue.oldest = work.accepted
        queue.count(work, work.waiting)
        heapq.heappush(queue.heap, (work.priority, work.tag, next(self._sequence), work))

    def drop(self, work: Work) -> None:
        """What of a request still waits is never taken. Idempotent."""
        if work.closed:
            return
        work.closed = True
        if work.waiting:
            queue = self._queues[work.batch.key]
            queue.closed += 1
            queue.count(work, -work.waiting)
            queue.drop_closed()
            self._forget_empty(work.batch.key, queue)

    def release(self, work: Work) -> None:
        """Counts an answered request out of the bounds."""
        plugin = work.batch.key.plugin
        self.held[plugin].add(work, -1)
        self._classes[work.priority].count(work, -1)
        caller = self._callers[plugin, work.caller]
        caller.add(work, -1)
        if not caller.requests:
            del self._callers[plugin, work.caller]
            if not any((name, work.caller) in self._callers for name in self.held):
                for order in self._classes.values():
                    order.ends.pop(work.caller, None)

    def _forget_empty(self, key: BatchKey, queue: _KeyQueue) -> None:
        if queue.head() is None:
            del self._queues[key]

    def heads(self, now: float) -> Iterator[tuple[Work, int]]:
        """For each key that is due: its first request and the items that wait with it, with an urgent one those that
        are urgent, too; the most urgent key first."""
        ready = []
        for queue in self._queues.values():
            head = queue.head()
            if head is not None and self._due_at(queue) <= now:
                items = queue.urgent_items if head.urgent else queue.items
                ready.append((head.priority, head.tag, head.accepted, next(self._sequence), head, items))
        for *_, head, items in sorted(ready, key=lambda entry: entry[:4]):
            yield head, items

    def next_due(self, after: float) -> float:
        """When the next key that is held back by the batch delay becomes due; infinity where none is. Those that
        were due before wait for a device, whatever the time."""
        times = (self._due_at(queue) for queue in self._queues.values() if queue.head())
        return min((due for due in times if due > after), default=float("inf"))

    def _due_at(self, queue: _KeyQueue) -> float:
        return queue.oldest if queue.items >= self._full_items else queue.oldest + self._delay_s

    def take(
        self, key: BatchKey, accepts: Callable[[Work], bool], max_items: int, max_bytes: int, max_units: int
    ) -> list[Piece]:
        """Takes pieces of one key in order, up to all bounds, cutting the last one.

        Requests that are not accepted are left for a later batch, and behind urgent ones those that are not urgent.
        The first piece has an item at least.
        """
        queue = self._queues[key]
        first = queue.head()
        pieces: list[Piece] = []
        skipped = []
        items, nbytes, taken_units = 0, 0, 0
        while first is not None and (work := queue.head()) is not None and work.urgent == first.urgent:
            entry = heapq.heappop(queue.heap)
            if not accepts(work):
                skipped.append(entry)
                continue
            count = work.fitting(max_items - items, max_bytes - nbytes, max_units - taken_units)
            if count < work.waiting:
                count -= count % CUT_ITEMS
            if not pieces:
                count = max(count, min(work.waiting, CUT_ITEMS))
            if count <= 0:
                skipped.append(entry)
                break
            piece = Piece(work, work.taken, work.taken + count)
            piece_bytes = work.nbytes_between(piece.begin, piece.end)
            pieces.append(piece)
            work.taken += count
            work.open_pieces += 1
            queue.count(work, -count)
            items += count
            nbytes += piece_bytes
            taken_units += units(count, piece_bytes)
            self._advance(work, units(count, piece_bytes))
            if work.waiting:
                heapq.heappush(queue.heap, (work.priority, work.tag, entry[2], work))
                break
        for entry in skipped:
            heapq.heappush(queue.heap, entry)
        if self._delay_s and queue.items:
            queue.oldest = min(entry[3].accepted for entry in queue.heap if not entry[3].closed)
        self._forget_empty(key, queue)
        return pieces

    def _advance(self, work: Work, taken_units: int) -> None:
        """Moves virtual time to this request, and what is left of it behind what it has had."""
        order = self._classes[work.priority]
        order.now = max(order.now, work.tag)
        work.tag += taken_units

    def works(self) -> list[Work]:
        """All requests of which something waits."""
        return [entry[3] for queue in self._queues.values() for entry in queue.heap if not entry[3].closed]

    @property
    def empty(self) -> bool:
        """Whether nothing waits for a device."""
        return not self._queues

    @property
    def urgent(self) -> bool:
        """Whether something that waits is urgent."""
        return any(queue.urgent_items for queue in self._queues.values())

    def waiting(self) -> tuple[int, int]:
        """Items that no device has, and requests that they belong to."""
        return (
            sum(queue.items for queue in self._queues.values()),
            sum(len(queue.heap) - queue.closed for queue in self._queues.values()),
        )
