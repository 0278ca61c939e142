"""TransformStream: one message a stream, in chunks that are worked on side by side and answered in order.

A reader thread takes chunks while what is under way stays within the bounds of a stream, and otherwise leaves them to
HTTP/2 flow control. A chunk is under way until its answer has been taken by the transport.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import grpc
import numpy as np

from verifier.api._calls import CallLimit, abort, caller_of, check_parsed, deadline_of, wait
from verifier.api._cipher_keys import KeyStore
from verifier.api._cipher_message import MessageStart, MessageStream, Step
from verifier.api._cipher_requests import CipherRequests, CipherScheme, initial_blocks
from verifier.api._schemes import read_priority
from verifier.api.status import status_of
from verifier.ciphers import GCM_TAG_BYTES
from verifier.errors import CapacityError, RequestError, StoppingError
from verifier.model import Bytes
from verifier.scheduling import Scheduler
from verifier.telemetry import Metrics
from verifier.v1 import cipher_pb2 as pb

__all__ = ["CipherStreams", "HeldBytes"]

_RPC = "TransformStream"


class HeldBytes:
    """How much plaintext all streams together keep back until its tag was checked."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._lock = threading.Lock()
        self._held = 0

    def take(self, nbytes: int) -> None:
        """Raises CapacityError."""
        with self._lock:
            if self._held + nbytes > self._limit:
                raise CapacityError(
                    f"{self._held} of {self._limit} bytes of plaintext wait for their tags (cipher.held_bytes)", 0.5
                )
            self._held += nbytes

    def give(self, nbytes: int) -> None:
        """Gives bytes back."""
        with self._lock:
            self._held -= nbytes


@dataclass(slots=True)
class _Held:
    """Plaintext of one stream, kept back."""

    account: HeldBytes
    limit: int
    parts: list[Bytes] = field(default_factory=list)
    nbytes: int = 0

    def add(self, part: Bytes) -> None:
        self.account.take(part.size)
        self.nbytes += part.size
        self.parts.append(part)

    def data(self) -> bytes:
        return b"".join(part.tobytes() for part in self.parts)

    def wipe(self) -> None:
        for part in self.parts:
            part[...] = 0
        self.parts.clear()
        self.account.give(self.nbytes)
        self.nbytes = 0


class CipherStreams:
    """The open streams of a service."""

    def __init__(
        self,
        requests: CipherRequests,
        keys: KeyStore,
        scheduler: Scheduler,
        metrics: Metrics,
        in_flight: int,
        max_held_bytes: int,
        held: HeldBytes,
        limit: CallLimit,
    ) -> None:
        self.requests = requests
        self.keys = keys
        self.scheduler = scheduler
        self.metrics = metrics
        self.in_flight = in_flight
        self.max_held_bytes = max_held_bytes
        self.held = held
        self._limit = limit
        self._draining = threading.Event()

    @property
    def draining(self) -> bool:
        """No new stream begins; those that are open go on while the daemon drains."""
        return self._draining.is_set()

    def drain(self) -> None:
        """Refuses new streams."""
        self._draining.set()

    def handle(self, requests: Iterator[Any], context: grpc.ServicerContext) -> Iterator[pb.TransformStreamResponse]:
        """The handler of the call: every error ends it with a status."""
        gauge = self.metrics.in_flight(_RPC)
        try:
            with self._limit, gauge.track_inprogress():
                if self.draining:
                    raise StoppingError("the daemon is stopping")
                yield from self._serve(requests, context)
        except Exception as error:
            status = status_of(error)
            self.metrics.request(_RPC, status.code.name)
            abort(context, status)
        self.metrics.request(_RPC, "OK")

    def _serve(self, requests: Iterator[Any], context: grpc.ServicerContext) -> Iterator[pb.TransformStreamResponse]:
        first = next(requests, None)
        check_parsed(first)
        if first is None or not first.HasField("begin"):
            raise RequestError("begin", "missing: it comes in a stream's first message")
        if first.data or first.last:
            raise RequestError("begin", "comes alone: data and `last` begin with the second message")
        stream = _Stream(self, first.begin, requests, context)
        try:
            yield from stream.answers()
        finally:
            stream.close()


class _Stream:
    def __init__(
        self, owner: CipherStreams, begin: pb.TransformBegin, requests: Iterator[Any], context: grpc.ServicerContext
    ) -> None:
        scheme = owner.requests.scheme(begin.scheme, streams=True)
        priority = read_priority(begin.priority)
        self._deadline = deadline_of(context)
        self._owner = owner
        self._requests = requests
        self._context = context
        self._key = begin.key
        self._caller = caller_of(context)
        self._algorithm = scheme.cipher.name
        owner.keys.use("key", [begin.key], self._algorithm, self._caller).release()
        self._message = MessageStream(
            _start(owner.requests, scheme, begin),
            owner.requests.operations(scheme),
            partial(owner.scheduler.submit, deadline=self._deadline, priority=priority, caller=self._caller),
            lambda future: wait(future, self._deadline),
        )
        self._scheme = scheme
        # A GCM decryption is kept back as a whole; where a tag is only checked there is nothing to give.
        self._checks_tag = scheme.mode == "GCM" and not scheme.encrypts
        keeps = self._checks_tag and scheme.direction == "DECRYPT"
        self._held = _Held(owner.held, owner.max_held_bytes) if keeps else None
        self._ready: queue.SimpleQueue[Step | Exception | None] = queue.SimpleQueue()
        self._lock = threading.Condition()
        self._steps = 0
        self._bytes = 0
        self._closed = False

    def answers(self) -> Iterator[pb.TransformStreamResponse]:
        reader = threading.Thread(target=self._read, name="cipher-stream-reader", daemon=True)
        reader.start()
        while True:
            step = self._ready.get()
            if step is None:
                return
            if isinstance(step, Exception):
                raise step
            yield self._answer(step)
            # Control returns here when the transport has taken the answer.
            self._room(step)
            if step.last:
                return

    def _answer(self, step: Step) -> pb.TransformStreamResponse:
        message, data = self._message, self._message.finish(step)
        if not self._checks_tag:
            answer = pb.TransformStreamResponse(data=data.tobytes(), last=step.last)
            answer.tag = message.tag if step.last else b""
        else:
            if self._held is not None:
                self._held.add(data)
            answer = pb.TransformStreamResponse(last=step.last)
            if step.last:
                answer.authentic = message.authentic
                answer.data = self._held.data() if self._held is not None and message.authentic else b""
        if step.last:
            answer.served_by, answer.device = message.served.served_by, message.served.device
        return answer

    def _room(self, step: Step) -> None:
        with self._lock:
            self._steps -= 1
            self._bytes -= int(step.stripes.lengths[0])
            self._lock.notify_all()

    def _read(self) -> None:
        try:
            last = False
            while not last:
                with self._lock:
                    self._lock.wait_for(self._may_read)
                    if self._closed:
                        return
                request = next(self._requests)
                check_parsed(request)
                last = request.last
                self._feed(request)
        except StopIteration:
            problem = "the stream ended without it: what was answered is not a whole message"
            self._ready.put(RequestError("last", problem))
        except Exception as error:
            # The transport ends the iterator with an exception of its own when the call is over.
            if self._context.is_active():
                self._ready.put(error)
            self._ready.put(None)

    def _may_read(self) -> bool:
        most = self._owner.requests.limits.max_batch_bytes
        return self._closed or (self._steps < self._owner.in_flight and self._bytes < most)

    def _feed(self, request: Any) -> None:
        limits = self._owner.requests.limits
        chunk = request.data
        if request.HasField("begin"):
            raise RequestError("begin", "comes once, in the first message")
        if len(chunk) > limits.max_batch_bytes // 2:
            raise RequestError("data", f"a chunk of {len(chunk)} bytes; at most {limits.max_batch_bytes // 2}")
        if self._held is not None and self._message.length + len(chunk) > self._held.limit:
            raise RequestError(
                "data",
                f"{self._message.length + len(chunk)} bytes and more, but a stream keeps back at most "
                f"{self._held.limit} (cipher.stream_held_bytes) until a tag is checked: read the message twice, with "
                "direction AUTHENTICATE, and then in CTR from the nonce and 00000002",
            )
        keys = self._owner.keys.use("key", [self._key], self._algorithm, self._caller)
        try:
            step = self._message.feed(chunk, request.last, keys)
        except BaseException:
            keys.release()
            raise
        with self._lock:
            self._steps += 1
            self._bytes += int(step.stripes.lengths[0])
            if not self._closed:
                self._ready.put(step)
                return
        step.cancel()

    def close(self) -> None:
        """The call is over: nobody takes answers any more."""
        with self._lock:
            self._closed = True
            self._lock.notify_all()
        if self._held is not None:
            self._held.wipe()
        while True:
            try:
                step = self._ready.get_nowait()
            except queue.Empty:
                return
            if isinstance(step, Step):
                step.cancel()


def _start(requests: CipherRequests, scheme: CipherScheme, begin: pb.TransformBegin) -> MessageStart:
    if len(begin.iv) != scheme.iv_bytes:
        raise RequestError("iv", f"{len(begin.iv)} bytes; {scheme.mode} takes {scheme.iv_bytes}")
    if begin.aad and scheme.mode != "GCM":
        raise RequestError("aad", f"must be empty: {scheme.mode} authenticates nothing")
    wanted = GCM_TAG_BYTES if scheme.mode == "GCM" and not scheme.encrypts else 0
    if len(begin.tag) != wanted:
        raise RequestError("tag", f"{len(begin.tag)} bytes; {scheme.direction} in {scheme.mode} takes {wanted}")
    if begin.first_block and scheme.mode != "CTR":
        raise RequestError("first_block", f"{begin.first_block}; only messages in CTR may begin beyond 0")
    if len(begin.aad) > requests.limits.max_batch_bytes // 2:
        raise RequestError("aad", f"{len(begin.aad)} bytes; at most {requests.limits.max_batch_bytes // 2}")
    iv = np.frombuffer(begin.iv, np.uint8).reshape(1, -1)
    return MessageStart(scheme, initial_blocks(scheme, iv, begin.first_block), begin.aad, begin.tag)
