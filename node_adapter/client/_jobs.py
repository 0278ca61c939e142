"""A batch on its way: how it is cut into requests, and how answers are read.

The same for the blocking and the asyncio client, which only differ in how they wait.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Generic, NamedTuple, TypeVar, cast

import numpy as np
import numpy.typing as npt

from node_adapter.client._answers import (
    no_digests,
    no_verdicts,
    read_codes,
    read_digests,
    read_outputs,
    read_served,
    read_verdicts,
)
from node_adapter.client._columns import Column, Values, pack, take, unique
from node_adapter.client._results import Digests, Recovered, Result, Verdicts, expand
from node_adapter.client._scheme import Hash, KeyEncoding, Priority, Scheme, SignatureEncoding
from node_adapter.client._shared_memory import Loan, SharedMemory
from node_adapter.client._wire import REQUESTS, column_field, pb
from node_adapter.errors import AnswerError, RequestError, UndecidedError
from verifier.columns_digest import columns_digest

__all__ = [
    "Chunk",
    "Job",
    "Limits",
    "Sent",
    "digest_job",
    "recover_job",
    "verify_job",
]

R = TypeVar("R", bound=Result)
Bytes = npt.NDArray[np.uint8]

# A request's fields besides the columns: ids, scheme, lengths.
_FRAME_BYTES = 16 * 1024

# Each call's columns, in the order in which their digest is taken.
_COLUMNS = {"Verify": ("input", "signature", "key"), "Recover": ("input", "signature"), "Digest": ("input",)}

# The daemon counts a named key, not its index: of a table x || y, of a set at most an SPKI with its offset.
_TABLE_KEY_BYTES, _SET_KEY_BYTES = 64, 95
_INDEX_BYTES = 4
_NOTHING = np.empty(0, np.uint8)


@dataclass(frozen=True, slots=True)
class Limits:
    """What a daemon accepts in one batch, and the size that keeps its devices busy."""

    max_items: int
    max_batch_bytes: int
    max_message_bytes: int
    preferred_items: int


class Chunk(NamedTuple):
    """The items `start` to `stop` of a job: one request."""

    start: int
    stop: int

    @property
    def items(self) -> int:
        """How many."""
        return self.stop - self.start


class Sent(NamedTuple):
    """A request's bytes, and what its answer must bear to be its answer. `end` it with its call."""

    request: bytes
    request_id: int
    chunk: Chunk
    columns_digest: bytes
    loan: Loan | None = None

    def end(self) -> None:
        """Gives back what was lent for it. Once."""
        if self.loan is not None:
            self.loan.end()


@dataclass(frozen=True, slots=True)
class Job(Generic[R]):
    """One batch of the caller. `method` is the RPC's name; `head` what is the same in all its requests."""

    method: str
    columns: Mapping[str, Column]
    head: bytes
    read: Callable[[Any, int], R]
    undecided: Callable[[int], R]
    inverse: npt.NDArray[np.intp] | None = None
    table: bytes = b""  # key_table, sent with every chunk
    portable: bool = True  # False: names a key set, which only this daemon has
    named_bytes: int = 0  # what the daemon's batch has more of each item than the request

    @property
    def items(self) -> int:
        """How many items are sent."""
        return next(iter(self.columns.values())).items

    def chunks(self, limits: Limits, chunk_items: int | None, chunk_bytes: int) -> list[Chunk]:
        """Cuts the job so that each request keeps the daemon's limits. Raises RequestError for an item over them."""
        items = self.items
        most_items = min(limits.max_items, chunk_items or limits.preferred_items or limits.max_items)
        hard = min(limits.max_batch_bytes, limits.max_message_bytes - _FRAME_BYTES) - len(self.table)
        tails, held_bytes = 0, self.named_bytes * items
        for column in self.columns.values():
            tails += 0 if column.offsets is None else 4  # each chunk's last offset
            held_bytes += column.nbytes
        if 0 < items <= most_items and held_bytes <= min(chunk_bytes, hard - tails):
            return [Chunk(0, items)]
        sent = np.sum([column.ends() for column in self.columns.values()], axis=0)
        held = sent + self.named_bytes * np.arange(items + 1)
        chunks = []
        start = 0
        while start < items:
            stop = min(_last(sent, start, chunk_bytes), _last(held, start, hard - tails))
            stop = min(max(stop, start + 1), start + most_items, items)
            size = int(held[stop] - held[start]) + tails
            if size > hard:
                raise RequestError("columns", f"item {start} has {size} bytes; the daemon's limit is {hard} a batch")
            chunks.append(Chunk(start, stop))
            start = stop
        return chunks

    def request(self, chunk: Chunk, request_id: int, memory: SharedMemory | None = None) -> Sent:
        """The contract's message for one chunk. Columns that lie in `memory`, or that it has room for, are sent as
        their places there, others are copied once, into the message's bytes."""
        views = {name: column.views(chunk.start, chunk.stop) for name, column in self.columns.items()}
        loan = memory.lend([data for data, _ in views.values()]) if memory else None
        if loan is not None:
            views = {name: (copy, views[name][1]) for name, copy in zip(views, loan.columns, strict=True)}
        rest = REQUESTS[self.method](request_id=request_id, items=chunk.items, **self._tail)
        told: list[bytes | memoryview] = []
        parts: list[bytes | memoryview] = []
        for name in _COLUMNS[self.method]:
            data, offsets = views.get(name, (_NOTHING, b""))
            told += (data.data, offsets)
            place = memory.place_of(data) if memory else None
            if place is not None:
                getattr(rest, name).CopyFrom(pb.Column(shared_data=place, offsets=offsets))
            elif data.size or offsets:
                parts += column_field(self.method, name, data.data, offsets)
        if self.method == "Verify":
            told.append(self.table)
        # Messages of one kind, one behind the other, are a message of the fields of both.
        body = b"".join((self.head, rest.SerializeToString(), *parts))
        return Sent(body, request_id, chunk, columns_digest(*told), loan)

    @property
    def _tail(self) -> dict[str, bytes]:
        return {"key_table": self.table} if self.table else {}

    def answer(self, response: Any, sent: Sent) -> R:
        """Reads an answer. Raises AnswerError where it is not the answer to this request."""
        if response.request_id != sent.request_id:
            raise AnswerError(f"request_id: {response.request_id} came back for {sent.request_id}")
        if response.items != sent.chunk.items:
            raise AnswerError(f"items: {response.items} came back for {sent.chunk.items}")
        if response.columns_digest != sent.columns_digest:
            told = response.columns_digest.hex() or "nothing"
            raise AnswerError(
                f"columns_digest: {told} came back for {sent.columns_digest.hex()}: other columns arrived"
            )
        return self.read(response, sent.chunk.items)

    def failed(self, chunk: Chunk, failure: UndecidedError) -> R:
        """The result of a chunk that has no answer."""
        result = self.undecided(chunk.items)
        return type(result)(**{**_fields(result), "failures": (failure,)})

    def only(self, chosen: npt.NDArray[np.intp]) -> Job[R]:
        """The same question about some of the items."""
        columns = {name: take(column, chosen) for name, column in self.columns.items()}
        return replace(self, columns=columns, inverse=None)

    def finish(self, result: R) -> R:
        """The result of the caller's items from that of the items sent."""
        return result if self.inverse is None else expand(result, self.inverse)


def verify_job(
    scheme: Scheme,
    inputs: Values,
    signatures: Values,
    keys: Values | npt.NDArray[np.uint32] | None,
    *,
    key_table: bytes = b"",
    key_set: int = 0,
    priority: Priority,
    deduplicate: bool,
) -> Job[Verdicts]:
    """Signatures to verify. Raises RequestError for columns that do not fit the scheme or each other."""
    _check_scheme(scheme)
    columns = {"input": pack("inputs", inputs, scheme.width("input"))}
    items = _some(columns["input"].items)
    columns["signature"] = pack("signatures", signatures, scheme.width("signature"), items)
    if scheme.key_encoding is KeyEncoding.IN_SIGNATURE:
        if keys is not None:
            raise RequestError("keys", "this scheme's keys stand in the signatures")
    elif keys is None:
        raise RequestError("keys", f"missing; the scheme's keys are {scheme.key_encoding.name}")
    elif scheme.key_encoding is KeyEncoding.INDEX:
        if bool(key_table) == bool(key_set):
            raise RequestError("keys", "indices need either key_table or key_set")
        numbers = np.ascontiguousarray(keys, dtype="<u4").view(np.uint8)
        columns["key"] = pack("keys", numbers, 4, items)
    else:
        columns["key"] = pack("keys", cast(Values, keys), scheme.width("key"), items)
    inverse = None
    if deduplicate and (distinct := unique(list(columns.values()))) is not None:
        columns = dict(zip(columns, distinct[0], strict=True))
        inverse = distinct[1]

    named = 0
    if scheme.key_encoding is KeyEncoding.INDEX:
        named = (_SET_KEY_BYTES if key_set else _TABLE_KEY_BYTES) - _INDEX_BYTES
    head = _verify_head(scheme, key_set, priority)
    return Job("Verify", columns, head, read_verdicts, no_verdicts, inverse, key_table, not key_set, named)


# A caller has few schemes: what is the same in all requests of one is written once.


@lru_cache(256)
def _verify_head(scheme: Scheme, key_set: int, priority: Priority) -> bytes:
    head = pb.VerifyRequest(scheme=scheme.message(), key_set=key_set, priority=int(priority))
    return cast(bytes, head.SerializeToString())


@lru_cache(256)
def _recover_head(scheme: Scheme, address_hash: Hash, priority: Priority) -> bytes:
    head = pb.RecoverRequest(scheme=scheme.message(), address_hash=int(address_hash), priority=int(priority))
    return cast(bytes, head.SerializeToString())


@lru_cache(256)
def _digest_head(hash_: Hash, priority: Priority) -> bytes:
    return cast(bytes, pb.DigestRequest(hash=int(hash_), priority=int(priority)).SerializeToString())


def recover_job(
    scheme: Scheme, inputs: Values, signatures: Values, *, address_hash: Hash, priority: Priority
) -> Job[Recovered]:
    """Signatures (r, s, v) to recover the public keys of."""
    _check_scheme(scheme)
    if scheme.signature_encoding is not SignatureEncoding.RAW_RSV:
        raise RequestError("scheme.signature_encoding", "keys are recovered from RAW_RSV only")
    columns = {"input": pack("inputs", inputs, scheme.width("input"))}
    items = _some(columns["input"].items)
    columns["signature"] = pack("signatures", signatures, scheme.width("signature"), items)
    address_bytes = 20 if address_hash else 0

    def read(response: Any, items: int) -> Recovered:
        keys = read_outputs("keys", response.keys, items, 64)
        addresses = read_outputs("addresses", response.addresses, items, address_bytes)
        return Recovered(read_codes(response, items), (read_served(response, items),), (), keys, addresses)

    def undecided(items: int) -> Recovered:
        zeros = np.zeros(items, np.uint8)
        return Recovered(zeros, (), (), np.zeros((items, 64), np.uint8), np.zeros((items, address_bytes), np.uint8))

    return Job("Recover", columns, _recover_head(scheme, address_hash, priority), read, undecided)


def _check_scheme(scheme: object) -> None:
    """An algorithm's name is the likely mistake: it says nothing about the encodings."""
    if not isinstance(scheme, Scheme):
        raise RequestError("scheme", f"{scheme!r} is not a Scheme, which names the input kind and the encodings, too")


def digest_job(hash_: Hash, inputs: Values, *, priority: Priority) -> Job[Digests]:
    """Messages to hash."""
    columns = {"input": pack("inputs", inputs, None)}
    _some(columns["input"].items)
    return Job("Digest", columns, _digest_head(hash_, priority), read_digests, no_digests)


def _last(ends: npt.NDArray[np.int64], start: int, nbytes: int) -> int:
    """Where the items from `start` on that have at most so many bytes end."""
    return int(np.searchsorted(ends, ends[start] + nbytes, "right")) - 1


def _some(items: int) -> int:
    if not items:
        raise RequestError("inputs", "no items; a batch has at least one")
    return items


def _fields(result: Result) -> dict[str, Any]:
    return {name: getattr(result, name) for name in result.__dataclass_fields__}
