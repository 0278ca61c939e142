"""Regions that clients on this host have registered, and the requests that name them."""

from __future__ import annotations

import math
import os
import secrets
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from verifier.api._lift import KINDS, ColumnarRequest, Given
from verifier.errors import CapacityError, NotFoundError, RequestError, VerifierError
from verifier.regions import Region
from verifier.v1 import verifier_pb2 as pb

__all__ = ["Held", "SharedLimits", "SharedRegions", "refuse_shared", "shared_columns"]

_NOTHING = Given(memoryview(b""), memoryview(b""))
_COLUMNS = tuple(dict.fromkeys(name for kind in KINDS.values() for name in kind.columns.values()))


def refuse_shared(name: str, column: pb.Column) -> None:
    """For calls that take no regions. Raises RequestError: what is named there must not pass for an empty column."""
    for field in ("shared_data", "shared_offsets"):
        if column.HasField(field):
            raise RequestError(
                f"{name}.{field}", "not taken by this call: Verify, VerifyStream, Recover and Digest take regions"
            )


def shared_columns(request: Any) -> dict[str, pb.Column]:
    """The columns of a request's message that lie in regions, whole or in part, by name."""
    columns = {name: getattr(request, name, None) for name in _COLUMNS}
    return {
        name: column
        for name, column in columns.items()
        if column is not None and (column.HasField("shared_data") or column.HasField("shared_offsets"))
    }


@dataclass(frozen=True, slots=True)
class SharedLimits:
    """Bounds of what is registered. All 0: shared memory is off."""

    regions: int = 0
    bytes: int = 0  # of all regions together
    region_bytes: int = 1 << 30  # of one region
    user_share: float = 1.0  # of either bound, for one user


@dataclass(slots=True)
class _Taken:
    """What is registered; retired regions that batches still use included."""

    regions: int = 0
    bytes: int = 0

    def add(self, nbytes: int, sign: int = 1) -> None:
        self.regions += sign
        self.bytes += sign * nbytes


class Held:
    """The regions that one request uses, held until `release`. Idempotent."""

    def __init__(self) -> None:
        self.regions: list[Region] = []

    def then(self, released: Callable[[], None] | None) -> Callable[[], None] | None:
        """What lets go of the regions and then calls `released`; None where there is nothing to do."""
        if not self.regions:
            return released

        def both() -> None:
            self.release()
            if released is not None:
                released()

        return both

    def release(self) -> None:
        """Lets go of the regions."""
        regions, self.regions = self.regions, []
        for region in regions:
            region.release()


class SharedRegions:
    """Thread-safe. Handles are random: whoever knows one was told it by the client that registered the region."""

    def __init__(
        self, limits: SharedLimits | None = None, changed: Callable[[int, int], None] = lambda _count, _bytes: None
    ) -> None:
        """`changed(regions, bytes)` is called after every change of what there is."""
        self._limits = limits or SharedLimits()
        self._changed = changed
        self._lock = threading.Lock()
        self._regions: dict[int, Region] = {}
        self._taken = _Taken()
        self._by_user: dict[int, _Taken] = {}

    def check_room(self, nbytes: int, uid: int) -> None:
        """Raises CapacityError where the user `uid` cannot register a region of this size now, RequestError where
        nobody can."""
        if nbytes > self._limits.region_bytes:
            limit = f"the limit of one region is {self._limits.region_bytes} (shared_memory.max_region_bytes)"
            raise RequestError("register_bytes", f"{nbytes} bytes; {limit}: register several")
        share = self._limits.user_share
        for whose, taken, part in (("", self._taken, 1.0), ("this user's ", self._of(uid), share)):
            regions, most = math.ceil(self._limits.regions * part), int(self._limits.bytes * part)
            if taken.regions >= regions:
                raise CapacityError(f"{whose}{taken.regions} regions are registered, which is the limit", 1.0)
            if taken.bytes + nbytes > most:
                raise CapacityError(f"{whose}{taken.bytes} of {most} bytes of regions are taken", 1.0)

    def _of(self, uid: int) -> _Taken:
        return self._by_user.get(uid) or _Taken()

    def _count(self, uid: int, nbytes: int, sign: int = 1) -> None:
        own = self._by_user.setdefault(uid, _Taken())
        for taken in (self._taken, own):
            taken.add(nbytes, sign)
        if not own.regions:
            del self._by_user[uid]
        self._changed(*self.sizes())

    def add(self, fd: int, nbytes: int, uid: int, on_gone: Callable[[Region], None]) -> int:
        """Registers memory of the user `uid` and returns its handle; takes `fd` over. Raises CapacityError,
        RequestError, OSError.

        `on_gone` is called when it is unregistered and no batch uses it any more.
        """

        def gone(region: Region) -> None:
            on_gone(region)
            with self._lock:
                self._count(uid, region.nbytes, -1)

        with self._lock:
            try:
                self.check_room(nbytes, uid)
            except VerifierError:
                os.close(fd)
                raise
            region = Region(fd, nbytes, changeable=True, on_gone=gone)
            handle = secrets.randbits(63) | 1
            self._regions[handle] = region
            self._count(uid, nbytes)
            return handle

    def remove(self, handle: int) -> None:
        """Unregisters a region; batches that use it are finished. Raises NotFoundError."""
        with self._lock:
            region = self._regions.pop(handle, None)
        if region is None:
            raise NotFoundError("region", f"{handle} is not registered")
        region.retire()

    def sizes(self) -> tuple[int, int]:
        """How many there are, and their bytes; those that batches still use included."""
        return self._taken.regions, self._taken.bytes

    def hold(self, request: ColumnarRequest) -> tuple[ColumnarRequest, Held]:
        """The request with the columns that it names in regions in their place, and those regions, held.

        The request itself is left as it was: gRPC keeps it longer than the region may live. Raises RequestError
        naming the field, NotFoundError; nothing is held then.
        """
        held = Held()
        columns = dict(request.columns)
        try:
            for name, column in shared_columns(request.message).items():
                columns[name] = self._given(name, column, columns.get(name), held)
        except BaseException:
            held.release()
            raise
        return (ColumnarRequest(request.message, columns) if held.regions else request), held

    def _given(self, name: str, column: pb.Column, own: Given | None, held: Held) -> Given:
        data, offsets, region = own or _NOTHING
        for field, given in (("data", data), ("offsets", offsets)):
            if given and column.HasField(f"shared_{field}"):
                raise RequestError(f"{name}.{field}", f"is given, and {name}.shared_{field} too")
        if column.HasField("shared_data"):
            data, region = self._bytes_of(f"{name}.shared_data", column.shared_data, held)
        if column.HasField("shared_offsets"):
            shared, _ = self._bytes_of(f"{name}.shared_offsets", column.shared_offsets, held)
            # A copy, made before they are checked: the client may change them at any time.
            offsets = memoryview(shared.tobytes())
        return Given(data, offsets, region)

    def _bytes_of(self, field: str, shared: pb.SharedBytes, held: Held) -> tuple[memoryview, Region]:
        region = self._regions.get(shared.region)
        if region is None:
            raise NotFoundError(f"{field}.region", f"{shared.region} is not registered")
        region.hold()
        held.regions.append(region)
        if shared.offset + shared.bytes > region.nbytes:
            raise RequestError(
                field, f"bytes {shared.offset} to {shared.offset + shared.bytes}, but the region has {region.nbytes}"
            )
        return region.memory[shared.offset : shared.offset + shared.bytes].data, region
