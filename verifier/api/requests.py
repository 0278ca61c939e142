"""Requests of the contract to batches: every field is checked, no item is looked at."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from verifier.api._lift import ColumnarRequest, Given
from verifier.api._schemes import Scheme, enum_name, read_priority, read_scheme, required
from verifier.api._shared import refuse_shared
from verifier.errors import NotServedError, RequestError
from verifier.keys import (
    INDEX_BYTES,
    MAX_KEY_BYTES,
    Indices,
    KeySet,
    KeySets,
    NamedBatch,
    key_codes,
    key_table,
    resolve,
)
from verifier.model import Batch, BatchResult, Column
from verifier.registry import Instance, Resolved, parameter_number
from verifier.scheduling import Priority
from verifier.schemes import fixed_width
from verifier.v1 import verifier_pb2 as pb

__all__ = ["Catalogue", "Limits", "Prepared", "Requests"]

_NO_ITEMS = np.empty(0, np.uint32)


@dataclass(frozen=True, slots=True)
class Limits:
    """What one request may hold."""

    max_items: int = 1 << 20
    max_batch_bytes: int = 48 << 20


class Catalogue(Protocol):
    """Who serves what; the registry."""

    def resolve(self, operation: str, algorithm: str | None, plugin: str = "") -> Resolved:
        """Raises NotServedError."""

    def active(self) -> Sequence[Instance]:
        """What new batches go to by default."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """A request as a batch, and the items that are decided already: their key index names no key."""

    batch: Batch | NamedBatch
    priority: Priority
    refused: Indices
    output_bytes: tuple[int, ...] = ()
    wants_addresses: bool = False


class Requests:
    """Reads requests against the daemon's limits and what its plugins accept. Thread-safe."""

    def __init__(self, catalogue: Catalogue, limits: Limits, key_sets: KeySets) -> None:
        self._catalogue = catalogue
        self._limits = limits
        self._key_sets = key_sets

    def verify(self, request: pb.VerifyRequest | ColumnarRequest) -> Prepared:
        """Raises RequestError naming field and limit, NotServedError, NotFoundError."""
        items = self._items(request.items)
        resolved = self._resolve("verify", request.scheme)
        operation = resolved.operation
        scheme = read_scheme(operation, request.scheme)
        columns = {"input": request.input, "signature": request.signature, "key": request.key}
        if not scheme.indexed and (request.key_table or request.key_set):
            field = "key_table" if request.key_table else "key_set"
            raise RequestError(field, "must be empty where scheme.key_encoding is not INDEX")
        if not scheme.indexed:
            batch = self._batch(resolved, scheme, items, columns)
            return Prepared(batch, read_priority(request.priority), _NO_ITEMS)
        keys = self._named_keys(operation.algorithm, request)
        limit = self._limits.max_batch_bytes
        indices, refused, key_bytes = resolve(keys, _indices(request.key, items), limit)
        scheme = _with_key_encoding(scheme, keys, operation.parameters["key_encoding"])
        batch = self._batch(resolved, scheme, items, columns, Column.absent())
        self._check_bytes(batch.nbytes + key_bytes)
        at = operation.inputs.index("key")
        named = NamedBatch(batch.key, items, batch.inputs, at, keys, indices, refused)
        return Prepared(named, read_priority(request.priority), refused)

    def recover(self, request: pb.RecoverRequest | ColumnarRequest) -> Prepared:
        """Raises RequestError naming field and limit, NotServedError."""
        items = self._items(request.items)
        resolved = self._resolve("recover", request.scheme)
        operation = resolved.operation
        required("scheme.signature_encoding", "signature_encoding", request.scheme.signature_encoding, ("RAW_RSV",))
        ignore = {"key_encoding"} | ({"signature_encoding"} - set(operation.parameters))
        scheme = read_scheme(
            operation, request.scheme, ignore=frozenset(ignore), address_hash=self._address_hash(request)
        )
        names = {"signature_encoding": "RAW_RSV", **scheme.names}
        scheme = Scheme(names, scheme.numbers, scheme.constant, False)
        batch = self._batch(resolved, scheme, items, {"input": request.input, "signature": request.signature})
        return Prepared(
            batch,
            read_priority(request.priority),
            _NO_ITEMS,
            _output_bytes(resolved),
            bool(request.address_hash),
        )

    def digest(self, request: pb.DigestRequest | ColumnarRequest) -> Prepared:
        """Raises RequestError naming field and limit, NotServedError."""
        items = self._items(request.items)
        name = enum_name("hash", request.hash) or required(
            "hash", "hash", request.hash, self._served("digest") or ("none",)
        )
        resolved = self._catalogue.resolve("digest", name)
        scheme = Scheme({}, {}, b"", False)
        batch = self._batch(resolved, scheme, items, {"input": request.input})
        return Prepared(
            batch,
            read_priority(request.priority),
            _NO_ITEMS,
            _output_bytes(resolved),
        )

    def keys(self, request: pb.RegisterKeysRequest) -> tuple[KeySet, Batch | None]:
        """The keys, and the batch that finds out which of them are keys.

        It verifies r = s = 1 with every key over a zero digest: whatever the verdict, a key that is none comes out
        with a code that says so. None where the plugin cannot be asked that way. Raises RequestError, NotServedError.
        """
        items = self._items(request.items)
        refuse_shared("keys", request.keys)
        asked = pb.Scheme(
            algorithm=request.algorithm,
            input_kind=pb.INPUT_KIND_DIGEST,
            signature_encoding=pb.SIGNATURE_ENCODING_RAW_RS,
            key_encoding=request.key_encoding,
        )
        resolved = self._resolve("verify", asked, "algorithm")
        encodings = resolved.operation.parameters.get("key_encoding", ())
        accepted = tuple(name for name in encodings if name not in ("IN_SIGNATURE", "INDEX"))
        encoding = required("key_encoding", "key_encoding", request.key_encoding, accepted)
        column = _column("keys", request.keys, fixed_width("key", {"key_encoding": encoding}), items)
        self._check_bytes(column.nbytes)
        if column.offsets is not None and (longest := int(np.diff(column.offsets).max())) > MAX_KEY_BYTES:
            raise RequestError("keys.offsets", f"a key of {longest} bytes; the limit is {MAX_KEY_BYTES}")
        keys = KeySet.of(resolved.operation.algorithm, encoding, items, column)
        self._key_sets.check_room(column.nbytes)
        try:
            scheme = read_scheme(resolved.operation, asked)
        except RequestError:
            return keys, None
        one = np.zeros((items, 64), np.uint8)
        one[:, (31, 63)] = 1
        given = {
            "input": Column(np.zeros(32 * items, np.uint8), 32),
            "signature": Column(one.reshape(-1), 64),
            "key": column,
        }
        key = resolved.key(scheme.numbers, scheme.constant)
        return keys, Batch(key, items, tuple(given[name] for name in resolved.operation.inputs))

    @staticmethod
    def usable(keys: KeySet, checked: BatchResult) -> KeySet:
        """The set with those of its keys marked that `checked` says are none."""
        return replace(keys, usable=~key_codes(checked.codes))

    def _items(self, items: int) -> int:
        if not 1 <= items <= self._limits.max_items:
            raise RequestError("items", f"{items}; a batch has 1 to {self._limits.max_items}")
        return items

    def _served(self, operation: str) -> tuple[str, ...]:
        names = (o.algorithm for i in self._catalogue.active() for o in i.manifest.operations if o.name == operation)
        return tuple(dict.fromkeys(names))

    def _resolve(self, operation: str, scheme: pb.Scheme, field: str = "scheme.algorithm") -> Resolved:
        """Algorithms that the contract does not name are reached by naming a plugin and leaving them UNSPECIFIED."""
        name = enum_name("algorithm", scheme.algorithm)
        if not name and (name is None or not scheme.plugin):
            required(field, "algorithm", scheme.algorithm, self._served(operation) or ("none",))
        return self._catalogue.resolve(operation, name or None, scheme.plugin)

    def _address_hash(self, request: pb.RecoverRequest | ColumnarRequest) -> int:
        if enum_name("address_hash", request.address_hash) is None:
            raise RequestError("address_hash", f"{request.address_hash} is not a value of the contract")
        return request.address_hash

    def _named_keys(self, algorithm: str, request: pb.VerifyRequest | ColumnarRequest) -> KeySet:
        table = request.key_table  # read once: every access copies it
        if bool(table) == bool(request.key_set):
            problem = "and key_set are both given" if table else "or key_set is needed with INDEX"
            raise RequestError("key_table", problem)
        if table:
            self._check_bytes(len(table))
            return key_table(algorithm, table)
        keys = self._key_sets.get(request.key_set)
        if keys.algorithm != algorithm:
            raise RequestError("key_set", f"its keys are for {keys.algorithm}, not {algorithm}")
        return keys

    def _batch(
        self,
        resolved: Resolved,
        scheme: Scheme,
        items: int,
        given: dict[str, pb.Column | Given],
        key: Column | None = None,
    ) -> Batch:
        inputs = []
        wanted = resolved.operation.inputs
        for name, message in given.items():
            if name not in wanted and (message.data or message.offsets):
                raise RequestError(name, f"must be empty: {resolved.operation.id} does not use it")
        for name in wanted:
            if name == "key" and key is not None:
                inputs.append(key)
                continue
            if name not in given:
                raise NotServedError("scheme", f"{resolved.operation.id} needs a column {name} that this call lacks")
            width = resolved.operation.widths.get(name) or fixed_width(name, scheme.names)
            inputs.append(_column(name, given[name], width, items))
        batch = Batch(resolved.key(scheme.numbers, scheme.constant), items, tuple(inputs))
        self._check_bytes(batch.nbytes)
        return batch

    def _check_bytes(self, nbytes: int) -> None:
        if nbytes > self._limits.max_batch_bytes:
            raise RequestError("columns", f"{nbytes} bytes; a batch has at most {self._limits.max_batch_bytes}")


def _column(name: str, message: pb.Column | Given, width: int | None, items: int) -> Column:
    region = message.region if isinstance(message, Given) else None
    if message.offsets:
        if width == 0:
            raise RequestError(f"{name}.offsets", "must be empty: this encoding has no such column")
        return Column.variable(name, message.data, message.offsets, items, region)
    if width is None:
        raise RequestError(
            f"{name}.offsets", f"missing: this encoding varies in width, so {items + 1} offsets are needed"
        )
    return Column.fixed(name, message.data, width, items, region)


def _indices(message: pb.Column | Given, items: int) -> Indices:
    if message.offsets:
        raise RequestError("key.offsets", f"must be empty: indices have {INDEX_BYTES} bytes each")
    # A copy: they are checked and then used, and a client may change what lies in its region between the two.
    return Column.fixed("key", message.data, INDEX_BYTES, items).data.copy().view("<u4")


def _with_key_encoding(scheme: Scheme, keys: KeySet, accepted: tuple[str | int, ...]) -> Scheme:
    if keys.encoding not in accepted:
        raise RequestError("key_set", f"its keys are {keys.encoding}; accepted are {', '.join(map(str, accepted))}")
    number = parameter_number("key_encoding", keys.encoding)
    return Scheme(
        {**scheme.names, "key_encoding": keys.encoding},
        {**scheme.numbers, "key_encoding": number},
        scheme.constant,
        False,
    )


def _output_bytes(resolved: Resolved) -> tuple[int, ...]:
    return tuple(output.bytes for output in resolved.operation.outputs)
