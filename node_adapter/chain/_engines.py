"""What verifies for a node that runs in real time: a daemon, or a library in the node."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Generator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from node_adapter.chain._libraries import by_library
from node_adapter.chain._questions import Codes, Point, Question
from node_adapter.client import Algorithm, AsyncVerifierClient, KeyEncoding, Scheme, SharedMemory
from node_adapter.errors import AdapterError, RefusedError
from verifier.model import Code

__all__ = ["Asked", "Engine", "Known", "Library", "Middleware"]

_AT_ONCE = 16
_ROOM_BYTES = 16 << 20  # for the columns of calls under way


@dataclass(frozen=True, slots=True)
class Asked:
    """One batch that a node had verified. `seconds` is from the question to the answer, on the node's side."""

    point: Point
    items: int
    seconds: float


class Engine(Protocol):
    """Decides a node's batches, and keeps count of them."""

    asked: list[Asked]
    served: Counter[tuple[str, str]]  # signatures by (plugin instance, device)
    cpu_s: float  # processor time that `verify` took on its caller's thread

    async def verify(self, question: Question) -> Codes:
        """One code an item."""

    async def close(self) -> None:
        """Ends the connection."""


class _Timed:
    """Awaits a coroutine and adds the processor time of its steps, not of what runs in between, to an engine's."""

    def __init__(self, coroutine: Coroutine[Any, Any, Any], engine: Engine) -> None:
        self._coroutine, self._engine = coroutine, engine

    def __await__(self) -> Generator[Any, Any, Any]:
        steps = self._coroutine.__await__()
        step: Callable[[], Any] = functools.partial(steps.send, None)
        while True:
            begun = time.thread_time()
            try:
                waited_for = step()
            except StopIteration as end:
                return end.value
            finally:
                self._engine.cpu_s += time.thread_time() - begun
            try:
                step = functools.partial(steps.send, (yield waited_for))
            except BaseException as error:  # a cancellation, or what the task was given: the coroutine's to handle
                step = functools.partial(steps.throw, error)


@functools.lru_cache
def _by_index(scheme: Scheme) -> Scheme:
    return replace(scheme, key_encoding=KeyEncoding.INDEX)


@dataclass(slots=True)
class Middleware:
    """A daemon, over a connection of this node's own. What it cannot decide in time stays undecided.

    `memory` is what the client has for its columns, where both are on one host.
    """

    client: AsyncVerifierClient
    memory: SharedMemory | None = None
    timeout_s: float = 30.0
    asked: list[Asked] = field(default_factory=list)
    served: Counter[tuple[str, str]] = field(default_factory=Counter)
    cpu_s: float = 0.0
    _enrolled: dict[bytes, int] = field(default_factory=dict)
    _key_set: int = 0

    @classmethod
    def at(cls, target: str, memory: str = "") -> Middleware:
        """`memory` is where the daemon takes its clients' memory; "": columns go by bytes, as where it takes none."""
        shared = None
        if memory:
            with contextlib.suppress(AdapterError):
                shared = SharedMemory(memory, 0, room=_ROOM_BYTES)
        return cls(AsyncVerifierClient(target, shared_memory=shared), shared)

    async def enroll(self, algorithm: Algorithm, keys: Sequence[bytes]) -> None:
        """Registers the chain's signers (x || y): the daemon keeps tables for them, and they are named by index."""
        self._key_set = await self.client.register_keys(algorithm, KeyEncoding.RAW_XY, keys)
        self._enrolled = {key: index for index, key in enumerate(keys)}

    async def verify(self, question: Question) -> Codes:
        """One code an item. Raises RefusedError where the daemon will never serve the scheme."""
        start = time.perf_counter()
        verdicts = await _Timed(self._ask(question), self)
        self.asked.append(Asked(question.point, len(question), time.perf_counter() - start))
        for part in verdicts.served:
            self.served[part.served_by, part.device] += part.items
        codes: Codes = verdicts.codes
        return codes

    async def _ask(self, question: Question) -> Any:
        common: dict[str, Any] = {
            "timeout_s": self.timeout_s,
            "priority": question.priority,
            "allow_undecided": True,
        }
        index = self._indices(question.keys) if self._key_set else None
        if index is not None:
            scheme = _by_index(question.scheme)
            try:
                return await self.client.verify(
                    scheme, question.inputs, question.signatures, index, key_set=self._key_set, **common
                )
            except RefusedError:
                self._key_set = 0  # a daemon that was started anew does not know the handle
        return await self.client.verify(
            question.scheme, question.inputs, question.signatures, question.keys, **common
        )

    def _indices(self, keys: Sequence[bytes]) -> npt.NDArray[np.uint32] | None:
        """Where the keys are among those enrolled; None where one is not."""
        try:
            return np.fromiter(map(self._enrolled.__getitem__, keys), np.uint32, len(keys))
        except KeyError:
            return None

    async def close(self) -> None:
        """Ends the connection."""
        await self.client.close()
        if self.memory is not None:
            self.memory.close()


@dataclass(slots=True)
class Library:
    """A CPU library in the node itself, on its only thread; between a few signatures it looks at its messages."""

    asked: list[Asked] = field(default_factory=list)
    served: Counter[tuple[str, str]] = field(default_factory=Counter)
    cpu_s: float = 0.0

    async def verify(self, question: Question) -> Codes:
        """One code an item."""
        start = time.perf_counter()
        codes = np.zeros(len(question), np.uint8)
        for part in np.array_split(np.arange(len(question)), -(-len(question) // _AT_ONCE) or 1):
            cpu = time.thread_time()
            codes[part] = by_library(question.only(part))
            self.cpu_s += time.thread_time() - cpu
            await asyncio.sleep(0)
        self.asked.append(Asked(question.point, len(question), time.perf_counter() - start))
        return codes

    async def close(self) -> None:
        """There is none."""


@dataclass(slots=True)
class Known:
    """Takes every signature for valid: a measurement of everything else."""

    asked: list[Asked] = field(default_factory=list)
    served: Counter[tuple[str, str]] = field(default_factory=Counter)
    cpu_s: float = 0.0

    async def verify(self, question: Question) -> Codes:
        """All valid."""
        self.asked.append(Asked(question.point, len(question), 0.0))
        return np.full(len(question), Code.VALID, np.uint8)

    async def close(self) -> None:
        """There is none."""
