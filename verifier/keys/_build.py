"""Tables of keys on one device, for one loaded plugin there."""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import Future
from typing import Protocol

import numpy as np
import numpy.typing as npt

from verifier.drivers import DeviceInfo
from verifier.gather import gather
from verifier.keys._memory import TableShape
from verifier.keys._sets import KeySet, Mask, key_codes
from verifier.keys._slots import Generations, Places, Slots
from verifier.model import Batch, BatchKey, BatchResult, Code, Column
from verifier.registry import Instance, parameter_number

__all__ = ["DeviceTables", "TableWorker"]

_EVERY_ROW = 2**32 - 1
_TIMEOUT_S = 60.0
_FIRST_KEYS = 4
_MOST_ITEMS = 1 << 18
_ROW_BYTES = 128  # of an item that writes a row: its name and a key
_STEP_S = 0.01  # a batch of keys should take about so long: what is served waits behind it


class TableWorker(Protocol):
    """One device, as verifier.workers.Worker."""

    @property
    def device(self) -> DeviceInfo: ...
    @property
    def restarts(self) -> int: ...
    def fits(self, items: int, nbytes: int, output_bytes: int = 0) -> bool: ...
    def run(
        self,
        instance_id: int,
        operation_index: int,
        key: BatchKey,
        parts: Sequence[Batch],
        deadline: float | None = None,
    ) -> Future[list[BatchResult]]: ...


class DeviceTables:
    """What one life of one device has of the tables of one instance, and the batches that add to it."""

    def __init__(
        self, worker: TableWorker, instance: Instance, algorithm: str, shape: TableShape, slots: Slots
    ) -> None:
        self.worker = worker
        self.shape = shape
        self.restarts = worker.restarts
        self.built: Generations = np.zeros(slots.capacity, np.uint32)
        self._refused: Generations = np.zeros(slots.capacity, np.uint32)
        self.instance = instance
        self._algorithm = algorithm
        # A GPU writes rows side by side; a CPU has enough with the keys, and spares the doublings that lead to rows.
        apart = worker.device.kind == "cuda"
        self._rows = np.arange(shape.rows, dtype=np.uint32) if apart else np.array([_EVERY_ROW], np.uint32)
        self._most = self._most_keys()
        self._keys = min(_FIRST_KEYS, self._most)

    def _most_keys(self) -> int:
        """Keys of one batch: as many as fit a slot of the worker, within reason."""
        keys = _MOST_ITEMS // self._rows.size
        while keys > 1 and not self.worker.fits(keys * self._rows.size, keys * self._rows.size * _ROW_BYTES):
            keys //= 2
        return keys

    @property
    def alive(self) -> bool:
        """Whether it is still the same process, so that what was built is there."""
        return self.worker.restarts == self.restarts

    def any_key(self) -> BatchKey:
        """A key whose lease keeps the instance loaded."""
        return self.instance.resolve("tabulate", self._algorithm, None).key({})

    def missing(self, slots: Slots) -> Places:
        """Slots whose key is not in its table here, those that were used last first."""
        places = slots.assigned
        wanted = slots.generation[places]
        places = places[(self.built[places] != wanted) & (self._refused[places] != wanted)]
        places = places[places < self.shape.slots]
        last_first = np.argsort(-slots.used[places], kind="stable")
        chosen: Places = places[last_first[: self._keys]]
        return chosen

    def build(self, slots: Slots, groups: Sequence[tuple[KeySet, Places, Places]]) -> tuple[int, Places]:
        """Builds the tables of (set, slots, places in the set) and lets them serve: how many do, and the slots whose
        key is none. Blocks.

        Raises BackendError where the device failed; what was built then is gone with its process, or built again.
        """
        begun = time.monotonic()
        count = tried = 0
        none: list[Places] = []
        for keys, places, index in groups:
            generation = slots.generation[places]
            good, no_key = self._tabulate(keys, places, generation, index)
            none.append(places[no_key])
            if good.any():
                good[good] = self._enroll(keys, places[good], generation[good], index[good])
            self._refused[places[~good]] = generation[~good]
            self.built[places[good]] = generation[good]
            count += int(good.sum())
            tried += places.size
        self._adapt(tried, time.monotonic() - begun)
        return count, np.concatenate(none)

    def _adapt(self, tried: int, seconds: float) -> None:
        if tried == self._keys and seconds < _STEP_S / 2:
            self._keys = min(2 * self._keys, self._most)
        elif seconds > 2 * _STEP_S:
            self._keys = max(self._keys // 2, 1)

    def _tabulate(self, keys: KeySet, places: Places, generation: Generations, index: Places) -> tuple[Mask, Mask]:
        """Writes rows: which keys have all of theirs, and which are no keys."""
        rows = self._rows
        # Neighbours have equal rows, so that a warp's lanes do equally many doublings.
        names = np.empty((rows.size, places.size, 3), "<u4")
        names[:, :, 0], names[:, :, 1], names[:, :, 2] = places, generation, rows[:, None]
        codes = self._run("tabulate", names.reshape(-1, 3), keys, np.tile(index, rows.size))
        codes = codes.reshape(rows.size, places.size)
        whole: Mask = (codes == Code.VALID).all(axis=0)
        none: Mask = np.logical_or.reduce(key_codes(codes))
        return whole, none

    def _enroll(self, keys: KeySet, places: Places, generation: Generations, index: Places) -> Mask:
        names = np.empty((places.size, 2), "<u4")
        names[:, 0], names[:, 1] = places, generation
        serves: Mask = self._run("enroll", names, keys, index) == Code.VALID
        return serves

    def _run(self, name: str, names: npt.NDArray[np.uint32], keys: KeySet, index: Places) -> npt.NDArray[np.uint8]:
        resolved = self.instance.resolve(name, self._algorithm, None)
        key = resolved.key({"key_encoding": parameter_number("key_encoding", keys.encoding)})
        columns = (Column(names.reshape(-1).view(np.uint8), 4 * names.shape[1]), gather(keys.keys, index))
        batch = Batch(key, names.shape[0], columns)
        (result,) = self.worker.run(self.instance.id, resolved.index, key, [batch]).result(_TIMEOUT_S)
        return result.codes
