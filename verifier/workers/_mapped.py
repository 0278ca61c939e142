"""The child's side of regions: mapped once, page-locked where the device copies from them."""

from __future__ import annotations

import logging
import os
from typing import NamedTuple

import numpy as np

from verifier.drivers._driver import Buffer, Driver
from verifier.errors import BackendError
from verifier.model import Bytes
from verifier.regions import map_memory
from verifier.workers._borrowed import Borrowed
from verifier.workers._layout import Layout

__all__ = ["MappedRegions"]

_log = logging.getLogger(__name__)


class _Mapped(NamedTuple):
    memory: Bytes
    changeable: bool
    locked: Buffer | None


class MappedRegions:
    """Regions by number. Used by the thread that takes batches; no batch uses a region when it is unmapped."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._mapped: dict[int, _Mapped] = {}

    def map(self, number: int, fd: int, nbytes: int, *, changeable: bool) -> None:
        """Maps a region and closes `fd`. Raises BackendError."""
        try:
            # Writable, though nobody here writes: memory that may only be read cannot be page-locked everywhere.
            memory = map_memory(fd, nbytes)
        except (OSError, ValueError) as error:
            raise BackendError(f"region {number} of {nbytes} bytes cannot be mapped: {error}") from None
        finally:
            os.close(fd)
        locked = None
        if not self._driver.info.unified:
            try:
                locked = self._driver.register(memory)
            except BackendError as error:
                if error.sticky:
                    raise
                _log.warning("region %d is not page-locked, its copies are slower: %s", number, error)
        self._mapped[number] = _Mapped(memory, changeable, locked)

    def unmap(self, number: int) -> None:
        """Lets go of a region. An unknown number is no error."""
        mapped = self._mapped.pop(number, None)
        if mapped is not None and mapped.locked is not None:
            mapped.locked.close()

    def memory(self, number: int) -> Bytes:
        """Raises BackendError where it is not mapped."""
        return self._get(number).memory

    def _get(self, number: int) -> _Mapped:
        mapped = self._mapped.get(number)
        if mapped is None:
            raise BackendError(f"region {number} is not mapped here")
        return mapped

    def in_place(self, slot: Bytes, layout: Layout, borrowed: tuple[Borrowed, ...]) -> Layout:
        """The layout for a device that works on host memory: a column that lies whole in a region is used there.

        Columns that are merged of several parts are put together in the slot, and so are those that their owner may
        still change: a kernel reads some bytes twice, and must see the same ones.
        """
        if not borrowed:
            return layout
        whole = {(piece.at, piece.nbytes): piece for piece in borrowed}
        base: int = slot.__array_interface__["data"][0]
        inputs = []
        for place in layout.inputs:
            piece = whole.get((place.data, place.nbytes))
            if piece is not None and not (mapped := self._get(piece.region)).changeable:
                address: int = mapped.memory.__array_interface__["data"][0]
                place = place._replace(data=address + piece.offset - base)
                del whole[piece.at, piece.nbytes]
            inputs.append(place)
        for piece in whole.values():
            source = self._get(piece.region).memory
            np.copyto(slot[piece.at : piece.at + piece.nbytes], source[piece.offset : piece.offset + piece.nbytes])
        return layout._replace(inputs=tuple(inputs))

    def close(self) -> None:
        """Lets go of all."""
        for number in list(self._mapped):
            self.unmap(number)
