"""The core's side of one front end: its calls in, their answers out.

A reader thread takes descriptors and submits them; a sender thread makes answers and sends them, so that neither the
scheduler nor a worker's thread waits for a front end that is slow. Where one call is all there is, the reader looks
for its answer and sends it itself, which saves waking the worker's thread and the sender. Verdicts of small urgent
batches are sent by the worker's thread where the socket has room for them. When the front end ends, its calls are
cancelled, and its region goes when no device reads it any more.
"""

from __future__ import annotations

import queue
import select
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
import structlog

from verifier.api import KINDS, ColumnarRequest, Given, Operations, Pending, serialized, status_of
from verifier.attended import Attended
from verifier.channel import Channel
from verifier.errors import RequestError
from verifier.frontend._messages import Answer, Call, Cancel, Counts, FromCore, Listening
from verifier.regions import Region
from verifier.scheduling import Priority

__all__ = ["Session"]

_log = structlog.get_logger(__name__)

_INLINE_BYTES = 4096  # longer answers go through the region
_AT_ONCE_ITEMS = 8192  # whose verdicts are 43 KB at most, and whose digest takes no time


@dataclass(slots=True, eq=False)
class _Open:
    """A call that is not answered yet. It is answered when it is `done` and its columns are `unread`, once."""

    call: Call
    at_once: bool = False  # it is answered by the thread that has its result
    pending: Pending | None = None
    refused: Exception | None = None
    done: bool = False
    unread: bool = False


class Session:
    """`on_message` gets what is not a call; `on_end` is called once, when the front end is gone."""

    def __init__(
        self,
        channel: Channel,
        region: Region,
        operations: Operations,
        on_message: Callable[[Listening | Counts], None],
        on_end: Callable[[], None],
    ) -> None:
        self._channel = channel
        self._region = region
        self._operations = operations
        self._on_message = on_message
        self._on_end = on_end
        self._lock = threading.Lock()
        self._open: dict[int, _Open] = {}
        self._outbox: queue.SimpleQueue[_Open | FromCore | None] = queue.SimpleQueue()
        self._answered: list[_Open] = []  # by the reader itself, which sends them
        self._sending = threading.Lock()
        self._gone = False  # nobody reads answers any more
        self._over = False  # nor sends them; changed with the last word in the outbox
        self._calls = select.poll()
        self._calls.register(channel.connection, select.POLLIN)
        self._threads = [
            threading.Thread(target=target, name=f"front-end {name}", daemon=True)
            for target, name in ((self._read, "calls"), (self._write, "answers"))
        ]

    def start(self) -> None:
        """Begins to serve."""
        for thread in self._threads:
            thread.start()

    def send(self, message: FromCore) -> None:
        """Sends a message behind the answers that are ready. Never blocks."""
        self._outbox.put(message)

    @property
    def open_calls(self) -> int:
        """Calls that are not answered yet."""
        return len(self._open)

    def join(self) -> None:
        """Waits until the front end is gone and its calls are cancelled. Nothing is sent behind that."""
        for thread in self._threads:
            thread.join()
        with self._sending:
            self._gone = True

    def _read(self) -> None:
        try:
            while True:
                message: Any = self._channel.receive()
                if isinstance(message, Call):
                    self._submit(message)
                elif isinstance(message, Cancel):
                    self._cancel(message.id)
                else:
                    self._tell(message)
                self._send_answered()
        except (EOFError, OSError):
            pass
        except msgspec.DecodeError as error:
            _log.error("front_end_sent_rubbish", error=str(error))
        finally:
            with self._lock:
                left = list(self._open)
            for number in left:
                self._cancel(number)
            self._send_answered()
            self._region.retire()
            with self._lock:
                self._over = True
                self._outbox.put(None)
            self._on_end()

    def _tell(self, message: Listening | Counts) -> None:
        """What cannot be done with a report, an audit's disk being full for instance, ends no calls."""
        try:
            self._on_message(message)
        except Exception:
            _log.exception("front_end_not_heard")

    def _submit(self, call: Call) -> None:
        entry = _Open(call)
        self._region.hold()
        with self._lock:
            self._open[call.id] = entry
        try:
            request = self._request(call)
            urgent = call.rpc == "Verify" and request.message.priority == Priority.CONSENSUS
            entry.at_once = urgent and request.message.items <= _AT_ONCE_ITEMS
            entry.pending = self._operations.submit(
                call.rpc,
                request,
                deadline=call.deadline,
                caller=call.caller,
                released=lambda: self._released(entry),
                digested=call.digested,
            )
        except Exception as error:
            self._region.release()
            entry.refused = error
            self._answered.append(entry)
            return
        future = entry.pending.future
        future.add_done_callback(lambda _: self._done(entry))
        if isinstance(future, Attended) and len(self._open) == 1:
            future.look(self._idle)

    def _idle(self) -> bool:
        """Whether the front end has sent nothing more."""
        return not self._calls.poll(0)

    def _send_answered(self) -> None:
        while self._answered:
            self._send(self._answered.pop())

    def _request(self, call: Call) -> ColumnarRequest:
        """Raises RequestError where the descriptor is wrong, which only a broken front end's is."""
        kind = KINDS.get(call.rpc)
        if kind is None:
            raise RequestError("rpc", f"{call.rpc} has no columns")
        columns = {}
        for span in call.spans:
            data = self._bytes(span.data, span.data_bytes)
            # A copy, made before they are checked: kernels follow them, and whoever has taken a front end over may
            # change what lies in its region at any time. Indices of keys are copied where they are read.
            offsets = memoryview(self._bytes(span.offsets, span.offsets_bytes).tobytes())
            columns[span.name] = Given(data, offsets, self._region)
        message: Any = kind.message()
        message.MergeFromString(call.message)
        return ColumnarRequest(message, columns)

    def _bytes(self, begin: int, nbytes: int) -> memoryview:
        if not 0 <= begin <= begin + nbytes <= self._region.nbytes:
            raise RequestError("span", f"{begin} and {nbytes} bytes are not in a region of {self._region.nbytes}")
        return self._region.memory[begin : begin + nbytes].data

    def _released(self, entry: _Open) -> None:
        self._region.release()
        with self._lock:
            entry.unread = True
            ready = entry.done
        if ready:
            self._ready(entry)

    def _done(self, entry: _Open) -> None:
        """Done or cancelled. Which of this and `_released` comes first depends on when a call is cancelled."""
        with self._lock:
            entry.done = True
            ready = entry.unread
        if ready:
            self._ready(entry)

    def _ready(self, entry: _Open) -> None:
        if threading.current_thread() is self._threads[0]:
            self._answered.append(entry)
            return
        if entry.at_once and self._outbox.empty() and self._has_room():
            self._send(entry)
            return
        with self._lock:
            if self._over:
                self._open.pop(entry.call.id, None)
                entry.pending = None  # whose batch lies in the region: in cycles it would keep that mapped
            else:
                self._outbox.put(entry)

    def _has_room(self) -> bool:
        """Whether the socket takes an answer at once: it can be written to while 150 KB of its buffer are free.

        Any thread asks, and a poll object is for one at a time.
        """
        room = select.poll()
        try:
            room.register(self._channel.connection, select.POLLOUT)
        except OSError:  # it is closed
            return False
        return bool(room.poll(0))

    def _cancel(self, number: int) -> None:
        with self._lock:
            entry = self._open.get(number)
        pending = None if entry is None else entry.pending  # read once: whoever answers takes it away
        if pending is not None:
            pending.future.cancel()

    def _write(self) -> None:
        while (message := self._outbox.get()) is not None:
            self._send(message)

    def _send(self, message: _Open | FromCore) -> None:
        if isinstance(message, _Open):
            with self._lock:
                self._open.pop(message.call.id, None)
            if self._gone:
                message.pending = None  # as in `_ready`
                return
            message = self._answer(message)
        with self._sending:
            try:
                if not self._gone:
                    self._channel.send(message)
            except OSError:
                self._gone = True  # the reader sees it too

    def _answer(self, entry: _Open) -> Answer:
        call = entry.call
        try:
            if entry.pending is None:
                assert entry.refused is not None
                raise entry.refused
            pending, entry.pending = entry.pending, None  # whose batch lies in the region
            body = serialized(pending.answer())
        except BaseException as error:  # CancelledError among them
            status = status_of(error)
            return Answer(call.id, status.number, status.message, status.field, status.retry_after_s)
        place = self._region.memory[call.begin : call.begin + call.nbytes]  # none where the front end has gone
        if _INLINE_BYTES < len(body) <= place.size:
            np.copyto(place[: len(body)], np.frombuffer(body, np.uint8))
            return Answer(call.id, 0, body_bytes=len(body))
        return Answer(call.id, 0, body=body)
