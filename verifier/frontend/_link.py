"""A front end's side of the core: columns into the region, descriptors out, answers back."""

from __future__ import annotations

import contextlib
import itertools
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import grpc
import numpy as np

from verifier.api import KINDS, ColumnarRequest, RefusedError, RequestDigest, Status, shared_columns
from verifier.attended import Attended
from verifier.channel import Channel
from verifier.frontend._messages import Answer, Call, Cancel, FromFrontEnd, Span
from verifier.frontend._refusals import Asked, Refusals
from verifier.model import Bytes
from verifier.places import Places
from verifier.reader import Reader
from verifier.regions import aligned
from verifier.v1 import verifier_pb2 as pb

__all__ = ["Link"]

_RESPONSES: dict[str, Any] = {"Verify": pb.VerifyResponse, "Recover": pb.RecoverResponse, "Digest": pb.DigestResponse}
_CODES = {code.value[0]: code for code in grpc.StatusCode}


class _Sent:
    """A call that the core has. `future` gives the bytes of the response."""

    def __init__(
        self, link: Link, number: int, place: tuple[int, int], asked: Asked, digest: RequestDigest | None
    ) -> None:
        self.place = place
        self.asked = asked
        self._digest = digest
        self._response = _RESPONSES[asked.rpc]
        self._parse = link.parse
        self.future: Attended[bytes] = Attended()
        self.future.attend = partial(link.reader.read_while, partial(link.is_next, number))
        self.future.add_done_callback(lambda done: link.cancel(number) if done.cancelled() else None)

    def answer(self) -> Any:
        body = self.future.result()
        return self._response.FromString(body) if self._parse else body

    def tail(self) -> bytes:
        """What comes behind the core's bytes: fields of a message may stand in any order."""
        if self._digest is None:
            return b""
        tail: bytes = self._response(columns_digest=self._digest.take()).SerializeToString()
        return tail


class Link:
    """The backend of a front end's calls. Thread-safe.

    `refusals` of the core are repeated for a moment.
    `reader`: of what the core sends, in which a call that waits for the only answer due takes its turn.
    `parse`: answers are messages, for traces that look into them; otherwise bytes as the core made them.
    `digests`: answers have their columns' digest, for callers that compare it.
    """

    def __init__(
        self,
        channel: Channel,
        reader: Reader,
        memory: Bytes,
        *,
        refusals: Refusals | None = None,
        parse: bool = False,
        digests: bool = True,
    ) -> None:
        self.reader = reader
        self._channel = channel
        self.parse = parse
        self._digests = digests
        self._refusals = refusals
        self._memory = memory
        self._places = Places(memory.size)
        self._ids = itertools.count()
        self._lock = threading.Lock()
        self._sending = threading.Lock()
        self._sent: dict[int, _Sent] = {}

    def submit(
        self,
        rpc: str,
        request: ColumnarRequest,
        *,
        deadline: float | None,
        caller: str,
        patient: Callable[[], bool] | None = None,
    ) -> _Sent:
        """Writes the columns into the region and sends the rest. Raises CapacityError, RefusedError."""
        asked = Asked(rpc, request.message, caller)
        if self._refusals is not None:
            self._refusals.check(asked)
        sizes = [aligned(len(g.data)) + aligned(len(g.offsets)) for g in request.columns.values()]
        place = self._places.take(sum(sizes), patient, deadline)
        number = next(self._ids)
        # Where some lie in a client's memory, which is not mapped here, the digest is the core's to take.
        for_core = self._digests and bool(shared_columns(request.message))
        digest = RequestDigest(KINDS[rpc], request) if self._digests and not for_core else None
        sent = _Sent(self, number, place, asked, digest)
        try:
            spans = self._write(request, place[0])
            message = request.message.SerializeToString()
            begin, end = place
            call = Call(number, rpc, message, spans, begin, end - begin, deadline, caller, not for_core)
            with self._lock:
                self._sent[number] = sent
            self.send(call)
        except BaseException:
            with self._lock:
                self._sent.pop(number, None)
            self._places.give_back(place)
            raise
        if digest is not None:
            digest.take()  # while the core works, and where the columns are in the caches
        return sent

    def _write(self, request: ColumnarRequest, at: int) -> tuple[Span, ...]:
        spans = []
        for name, given in request.columns.items():
            begins = []
            for source in (given.data, given.offsets):
                # numpy lets other threads run while it copies; a memoryview does not.
                np.copyto(self._memory[at : at + len(source)], np.frombuffer(source, np.uint8))
                begins.append(at)
                at += aligned(len(source))
            spans.append(Span(name, begins[0], len(given.data), begins[1], len(given.offsets)))
        return tuple(spans)

    def is_next(self, number: int) -> bool:
        """Whether nothing but this call's answer is waited for."""
        return len(self._sent) == 1 and number in self._sent

    def cancel(self, number: int) -> None:
        """Tells the core that nobody waits. The place is kept until the core has answered."""
        with self._lock:
            known = number in self._sent
        if known:
            self.send(Cancel(number))

    def send(self, message: FromFrontEnd) -> None:
        """Sends a message. Where the core is gone this process is about to end, and nothing is raised."""
        # The thread that reads sees it too, and ends the process.
        with self._sending, contextlib.suppress(OSError):
            self._channel.send(message)

    def take(self, answer: Answer) -> None:
        """An answer has come."""
        with self._lock:
            sent = self._sent.pop(answer.id)
        outcome: Any
        if answer.code:
            status = Status(_CODES[answer.code], answer.message, answer.field, answer.retry_after_s)
            if self._refusals is not None:
                self._refusals.note(sent.asked, status)
            outcome = RefusedError(status)
        elif answer.body_bytes:
            begin = sent.place[0]
            outcome = b"".join((self._memory[begin : begin + answer.body_bytes].data, sent.tail()))
        else:
            outcome = answer.body + sent.tail()
        self._places.give_back(sent.place)
        if not sent.future.set_running_or_notify_cancel():
            return
        if isinstance(outcome, bytes):
            sent.future.set_result(outcome)
        else:
            sent.future.set_exception(outcome)
