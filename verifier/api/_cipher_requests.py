"""Requests of CipherService to messages: every field is checked against the scheme, no item is looked at."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from verifier.api._cipher_keys import Indices
from verifier.api._cipher_modes import CELL_BYTES, CHAIN_BYTES, Messages, Operations
from verifier.api._cipher_stripes import Lengths, add_to_counters
from verifier.api._schemes import one_of, read_priority
from verifier.api._shared import refuse_shared
from verifier.api.requests import Catalogue, Limits
from verifier.ciphers import CIPHERS, GCM_TAG_BYTES, Cipher
from verifier.errors import NotServedError, RequestError
from verifier.model import BatchKey, Bytes, Column
from verifier.scheduling import Priority
from verifier.v1 import cipher_pb2 as pb
from verifier.v1 import verifier_pb2

__all__ = [
    "CipherRequests",
    "CipherScheme",
    "Transform",
    "check_key",
    "initial_blocks",
]

_MAX_GCM_BYTES = ((1 << 32) - 2) * 16  # SP 800-38D, 5.2.1.1
_BYTE_ORDERS = {"LOW_FIRST": 0, "HIGH_FIRST": 1}


def _unset(field: str, number: int, why: str) -> None:
    if number:
        raise RequestError(field, f"must not be set: {why}")


@dataclass(frozen=True, slots=True)
class CipherScheme:
    """What is done: `direction` is ENCRYPT, DECRYPT or AUTHENTICATE; `option` are parameters of the cipher's own."""

    cipher: Cipher
    mode: str
    direction: str
    option: Mapping[str, int]
    gost: bool
    plugin: str

    @property
    def encrypts(self) -> bool:
        """Otherwise it decrypts, or checks a tag."""
        return self.direction == "ENCRYPT"

    @property
    def iv_bytes(self) -> int:
        """Of an initial vector as the caller gives it."""
        return self.cipher.iv_bytes(self.mode, gost=self.gost)

    @property
    def whole_blocks(self) -> bool:
        """Whether messages must end with a block."""
        return self.mode in ("ECB", "CBC")

    def check_length(self, field: str, length: int) -> None:
        """Raises RequestError where no message of this mode has so many bytes."""
        block = self.cipher.block_bytes
        if self.whole_blocks and length % block:
            raise RequestError(
                field,
                f"{length} bytes end in a block of {length % block}; {self.mode} takes whole blocks of {block}: "
                "pad the message, or use CTR or GCM",
            )
        if self.mode == "GCM" and length > _MAX_GCM_BYTES:
            raise RequestError(field, f"{length} bytes; a message in GCM has at most {_MAX_GCM_BYTES}")


def check_key(algorithm: int, key: bytes) -> Cipher:
    """The cipher of a key. Raises RequestError naming the sizes that it may have."""
    cipher = CIPHERS[one_of("algorithm", pb.CipherAlgorithm, algorithm, tuple(CIPHERS))]
    if len(key) not in cipher.key_bytes:
        sizes = ", ".join(map(str, cipher.key_bytes))
        raise RequestError("key", f"{len(key)} bytes; keys of {cipher.name} have {sizes}")
    return cipher


def _not_loaded(cipher: Cipher) -> NotServedError:
    """The error that says how a cipher is loaded."""
    return NotServedError(
        "scheme.algorithm",
        f"no loaded plugin has {cipher.name}: ask the operator for `verifier plugin load {cipher.plugin}`, or for "
        f'plugins.load = ["auto", "{cipher.plugin}"] in the daemon\'s settings',
    )


def initial_blocks(scheme: CipherScheme, iv: Bytes, first_block: int) -> Bytes:
    """The blocks that messages begin from, given the callers' initial vectors, (n, iv_bytes)."""
    if scheme.mode != "CTR":
        return iv
    counters = np.zeros((len(iv), scheme.cipher.block_bytes), np.uint8)
    counters[:, : iv.shape[1]] = iv
    return add_to_counters(counters, np.full(len(iv), first_block, np.uint64)) if first_block else counters


@dataclass(frozen=True, slots=True)
class Transform:
    """A checked request. `index` says which of `keys` each item has; None: there is one for all."""

    scheme: CipherScheme
    operations: Operations
    messages: Messages
    keys: list[int]
    index: Indices | None
    priority: Priority

    @property
    def short(self) -> bool:
        """Whether every message fits a cell."""
        return int(self.messages.lengths.max(initial=0)) <= CELL_BYTES


class CipherRequests:
    """Reads requests against the daemon's limits and its loaded plugins. Thread-safe."""

    def __init__(self, catalogue: Catalogue, limits: Limits) -> None:
        self._catalogue = catalogue
        self.limits = limits

    def operations(self, scheme: CipherScheme) -> Operations:
        """How batches of a scheme are keyed. `resolve` raises NotServedError, saying how to load the plugin."""

        def resolve(operation: str, **parameters: int) -> BatchKey:
            try:
                resolved = self._catalogue.resolve(operation, scheme.cipher.name, scheme.plugin)
            except NotServedError:
                if scheme.plugin:
                    raise
                raise _not_loaded(scheme.cipher) from None
            return resolved.key(parameters)

        return Operations(scheme.cipher, scheme.mode, scheme.encrypts, scheme.option, resolve)

    def scheme(self, scheme: pb.CipherScheme, *, streams: bool = False) -> CipherScheme:
        """Raises RequestError naming the field and what is accepted, NotServedError saying how to load the plugin."""
        cipher = CIPHERS[one_of("scheme.algorithm", pb.CipherAlgorithm, scheme.algorithm, tuple(CIPHERS))]
        mode = one_of("scheme.mode", pb.CipherMode, scheme.mode, cipher.modes)
        directions = ("ENCRYPT", "DECRYPT", *(("AUTHENTICATE",) if streams and mode == "GCM" else ()))
        direction = one_of("scheme.direction", pb.Direction, scheme.direction, directions)
        option: dict[str, int] = {}
        if cipher.name == "HIGHT":
            order = one_of("scheme.byte_order", pb.CipherByteOrder, scheme.byte_order, tuple(_BYTE_ORDERS))
            option["byte_order"] = _BYTE_ORDERS[order]
        else:
            _unset("scheme.byte_order", scheme.byte_order, f"{cipher.name} has one byte order")
        gost = False
        if mode == "CTR":
            formats = ("FULL_BLOCK", *(("GOST_HALF_BLOCK",) if cipher.name == "KUZNYECHIK" else ()))
            wanted = one_of("scheme.counter_format", pb.CounterFormat, scheme.counter_format, formats)
            gost = wanted == "GOST_HALF_BLOCK"
        else:
            _unset("scheme.counter_format", scheme.counter_format, f"{mode} has no counter of the caller's")
        read = CipherScheme(cipher, mode, direction, option, gost, scheme.plugin)
        self.operations(read).resolve("gcm_tag" if mode == "GCM" else "ecb_encrypt")
        return read

    def check_loaded(self, cipher: Cipher) -> None:
        """Raises NotServedError, saying how to load it."""
        try:
            self._catalogue.resolve("ecb_encrypt", cipher.name)
        except NotServedError:
            raise _not_loaded(cipher) from None

    def transform(self, request: pb.TransformRequest) -> Transform:
        """Raises RequestError naming field, what came and what is allowed; NotServedError."""
        items = request.items
        if not 1 <= items <= self.limits.max_items:
            raise RequestError("items", f"{items}; a request has 1 to {self.limits.max_items}")
        scheme = self.scheme(request.scheme)
        for field in ("data", "iv", "aad"):
            refuse_shared(field, getattr(request, field))
        lengths, data = _read_data(request.data, items, scheme)
        index = _read_index(request, items, self.limits.max_items)
        iv = _read_iv(request.iv, items, scheme)
        if request.first_block and scheme.mode != "CTR":
            raise RequestError("first_block", f"{request.first_block}; only messages in CTR may begin beyond 0")
        read = Transform(
            scheme,
            self.operations(scheme),
            Messages(
                lengths,
                data,
                initial_blocks(scheme, iv, request.first_block),
                _read_aad(request.aad, items, scheme),
                _read_tags(request.tags, items, scheme),
            ),
            list(request.keys),
            index,
            read_priority(request.priority),
        )
        self._check_bytes(read)
        return read

    def _check_bytes(self, read: Transform) -> None:
        """The columns as they will lie in slots: short items in cells, long ones in whole stripes or parts."""
        lengths, cipher = read.messages.lengths, read.scheme.cipher
        longest = int(lengths.max(initial=0))
        if not read.short and read.index is not None:
            raise RequestError(
                "data.offsets",
                f"item {int(lengths.argmax())} has {longest} bytes; with several keys an item has at most "
                f"{CELL_BYTES}: send longer ones in requests of one key",
            )
        width = CHAIN_BYTES if read.scheme.mode == "CBC" and read.scheme.encrypts else cipher.stripe_bytes
        cells = lengths.size * CELL_BYTES if read.short else int((-(-lengths // width)).sum()) * width
        nbytes = cells + read.messages.aad.nbytes + read.messages.iv.size + read.messages.tags.size
        if nbytes > self.limits.max_batch_bytes:
            raise RequestError(
                "data",
                f"{nbytes} bytes in cells of {CELL_BYTES if read.short else width}; a request has at most "
                f"{self.limits.max_batch_bytes}: send several, or a stream",
            )


def _read_data(column: verifier_pb2.Column, items: int, scheme: CipherScheme) -> tuple[Lengths, Bytes]:
    if items == 1 and not column.offsets:
        data = np.frombuffer(column.data, np.uint8)
        lengths = np.array([data.size], np.int64)
    elif not column.offsets:
        raise RequestError("data.offsets", f"missing: {items} items need {items + 1} offsets of 4 bytes")
    else:
        read = Column.variable("data", column.data, column.offsets, items)
        assert read.offsets is not None
        data = read.data
        lengths = read.offsets[1:].astype(np.int64) - read.offsets[:-1]
    if scheme.whole_blocks and (partial := lengths % scheme.cipher.block_bytes != 0).any():
        scheme.check_length(f"data: item {int(partial.argmax())}", int(lengths[partial.argmax()]))
    return lengths, data


def _read_index(request: pb.TransformRequest, items: int, max_keys: int) -> Indices | None:
    keys, raw = len(request.keys), request.key_index
    if not 1 <= keys <= max_keys:
        raise RequestError("keys", f"{keys} handles; a request has 1 to {max_keys}")
    if keys == 1 and not raw:
        return None
    if not raw:
        raise RequestError("key_index", f"missing: {keys} keys are given, and it says which of them an item has")
    index = Column.fixed("key_index", raw, 4, items).data.view("<u4")
    if (beyond := index >= keys).any():
        at = int(beyond.argmax())
        raise RequestError("key_index", f"item {at} has key {index[at]}; `keys` has {keys}, counted from 0")
    return index


def _read_iv(column: verifier_pb2.Column, items: int, scheme: CipherScheme) -> Bytes:
    width = scheme.iv_bytes
    if column.offsets:
        raise RequestError("iv.offsets", f"must be empty: initial vectors of {scheme.mode} have {width} bytes each")
    data = np.frombuffer(column.data, np.uint8)
    if data.size != items * width:
        raise RequestError(
            "iv.data", f"{data.size} bytes; {items} items in {scheme.mode} need {items * width}, {width} each"
        )
    return data.reshape(items, width)


def _read_aad(column: verifier_pb2.Column, items: int, scheme: CipherScheme) -> Column:
    if scheme.mode != "GCM" and (column.data or column.offsets):
        raise RequestError("aad", f"must be empty: {scheme.mode} authenticates nothing")
    if column.offsets:
        return Column.variable("aad", column.data, column.offsets, items)
    data = np.frombuffer(column.data, np.uint8)
    if data.size and items != 1:
        raise RequestError("aad.offsets", f"missing: {items} items need {items + 1} offsets of 4 bytes")
    return Column(data, 0, np.minimum(np.arange(items + 1), 1).astype(np.uint32) * np.uint32(data.size))


def _read_tags(raw: bytes, items: int, scheme: CipherScheme) -> Bytes:
    wanted = items * GCM_TAG_BYTES if scheme.mode == "GCM" and not scheme.encrypts else 0
    if len(raw) != wanted:
        why = f"{GCM_TAG_BYTES} each" if wanted else f"{scheme.direction} in {scheme.mode} takes none"
        raise RequestError("tags", f"{len(raw)} bytes; {items} items need {wanted}, {why}")
    return np.frombuffer(raw, np.uint8).reshape(-1, GCM_TAG_BYTES)
