"""Tables of all algorithms on all devices: who gets a slot, what is built where, and when it may be used."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Protocol
from weakref import WeakSet

import numpy as np
import structlog

from verifier.errors import VerifierError
from verifier.keys._build import DeviceTables
from verifier.keys._memory import RESERVED_SLOTS, TableShape
from verifier.keys._sets import KeySet, Mask
from verifier.keys._slots import Holds, Places, Slots
from verifier.model import BatchKey
from verifier.registry import Instance, InstanceStatus, Lease, Resolved

__all__ = ["AlgorithmTables", "KeyTables", "TableOptions", "TableStats"]

_log = structlog.get_logger(__name__)

_IDLE_S = 10.0  # a key that was used within this time keeps its slot
_PUBLISH_S = 0.1  # how often batches learn of new tables while many are built
_LOOK_S = 1.0  # how often to look for what nobody tells: batches that end, keys that fall idle
_AFTER_FAULT_S = 0.5


class Catalogue(Protocol):
    """Who serves what; the registry."""

    def resolve(self, operation: str, algorithm: str | None, plugin: str = "") -> Resolved: ...
    def active(self) -> Sequence[Instance]: ...
    def lease(self, key: BatchKey) -> Lease: ...
    def subscribe(self, listener: Callable[[InstanceStatus], None]) -> None: ...


@dataclass(frozen=True)
class TableOptions:
    """Where tables are kept. `devices`: ids, or "auto" for all."""

    devices: tuple[str, ...] = ("auto",)

    def has(self, device_id: str) -> bool:
        """Whether a device keeps tables."""
        return "auto" in self.devices or device_id in self.devices


@dataclass
class TableStats:
    """What became of one algorithm's keys so far."""

    enrolled: int = 0  # keys that every device serves, and that batches go by
    waiting: int = 0  # keys with a slot whose tables are not everywhere yet
    builds: int = 0  # tables built, each device's counted
    evictions: int = 0
    hits: int = 0  # items that went by a table
    misses: int = 0  # items of a registered or promoted key that did not
    promoted: int = 0
    bytes_by_device: tuple[tuple[str, int], ...] = ()


class AlgorithmTables:
    """Slots of one algorithm, and the devices that have them."""

    def __init__(self, algorithm: str, capacity: int, wake: Callable[[], None]) -> None:
        self.algorithm = algorithm
        self.holds = Holds()
        self.slots = Slots(capacity, self.holds)
        self.stats = TableStats()
        self.devices: list[DeviceTables] = []
        self.lock = threading.Lock()
        self._wanted: dict[KeySet, Mask] = {}
        self._forgotten: WeakSet[KeySet] = WeakSet()
        self._wake = wake
        self._published = 0.0
        self._unpublished = False
        self._shown = self.slots.ready  # as of the last time that batches were told

    def want(self, keys: KeySet, places: Places) -> None:
        """Asks for tables of keys at these places of a set, where there is room. Nothing where it was forgotten."""
        with self.lock:
            if keys in self._forgotten:  # by a batch that was accepted before
                return
            mask = self._wanted.get(keys)
            if mask is None:
                mask = self._wanted[keys] = np.zeros(keys.items, np.bool_)
            mask[places] = True
        self._wake()

    def forget(self, keys: KeySet) -> None:
        """Takes every slot from a set, for good."""
        with self.lock:
            self._forgotten.add(keys)
            self._wanted.pop(keys, None)
            self.slots.release(keys)
        self._wake()

    def count(self, hits: int, misses: int) -> None:
        """Items went by tables, and items of keys that may have one did not."""
        with self.lock:
            self.stats.hits += hits
            self.stats.misses += misses

    def assign(self, now: float) -> None:
        """Gives slots to keys that want one: free ones, then those of keys that were not used for a while."""
        with self.lock:
            for keys, mask in list(self._wanted.items()):
                places = self.slots.without_slot(keys, np.flatnonzero(mask))
                short = places.size - self.slots.free - self.slots.leaving
                if short > 0:
                    self.slots.evict(short, now - _IDLE_S)
                given = self.slots.assign(keys, places, now)
                mask[:] = False
                if given < places.size and self.slots.leaving:
                    mask[places[given : given + self.slots.leaving]] = True  # as soon as batches from before are over
                else:
                    del self._wanted[keys]

    def take_stock(self, *, at_once: bool) -> None:
        """Finds out which slots every device serves, and tells the sets."""
        now = time.monotonic()
        with self.lock:
            slots = self.slots
            serves = slots.generation.copy() if self.devices else np.zeros_like(slots.generation)
            for device in self.devices:
                serves[device.built != slots.generation] = 0
            changed = slots.ready != serves
            self._unpublished |= bool(changed.any())
            lost = bool((changed & (slots.ready != 0)).any())
            slots.ready = serves
            if self._unpublished and (at_once or lost or now - self._published > _PUBLISH_S):
                slots.publish()
                self._published, self._unpublished, self._shown = now, False, slots.ready
            assigned = slots.assigned
            self.stats.enrolled = int(np.count_nonzero(self._shown[assigned] == slots.generation[assigned]))
            self.stats.waiting = assigned.size - self.stats.enrolled
            self.stats.evictions = slots.evicted
            self.stats.bytes_by_device = tuple(
                (device.worker.device.id, int(np.count_nonzero(device.built)) * device.shape.slot_bytes)
                for device in self.devices
            )

    def build_some(self, device: DeviceTables) -> bool:
        """Builds the next tables on one device; whether there were any."""
        with self.lock:
            places = device.missing(self.slots)
            groups = self.slots.keys_of(places)
        if not groups:
            return False
        built, none = device.build(self.slots, groups)
        with self.lock:
            self.stats.builds += built
            self.slots.drop(none)
        return True


class KeyTables:
    """The tables of a daemon, and the thread that keeps them as they should be."""

    def __init__(self, catalogue: Catalogue, options: TableOptions) -> None:
        self._catalogue = catalogue
        self._options = options
        self._algorithms: dict[str, AlgorithmTables] = {}
        self._known: dict[tuple[str, int, str], DeviceTables] = {}
        self._changed = threading.Event()
        self._closing = False
        self._thread = threading.Thread(target=self._run, name="key-tables", daemon=True)
        catalogue.subscribe(lambda _: self.wake())

    def start(self) -> None:
        """Starts the thread."""
        self._thread.start()

    def close(self) -> None:
        """Ends the thread; waits for the tables that are being built."""
        self._closing = True
        self._changed.set()
        if self._thread.ident is not None:
            self._thread.join()

    def wake(self) -> None:
        """Looks again: an instance or a device has changed. Never blocks."""
        self._changed.set()

    def of(self, algorithm: str) -> AlgorithmTables | None:
        """The tables of an algorithm; None where no plugin keeps any."""
        return self._algorithms.get(algorithm)

    def register(self, keys: KeySet) -> None:
        """Asks for tables of a whole set, as far as there is room for its keys."""
        tables = self.open(keys.algorithm)
        if tables is not None:
            tables.want(keys, np.flatnonzero(keys.usable))

    def release(self, keys: KeySet) -> None:
        """Lets go of a set."""
        tables = self.of(keys.algorithm)
        if tables is not None:
            tables.forget(keys)

    def stats(self) -> dict[str, TableStats]:
        """By algorithm."""
        return {name: tables.stats for name, tables in self._algorithms.items()}

    def open(self, algorithm: str) -> AlgorithmTables | None:
        """The tables of an algorithm, made where there are none yet; None where no plugin keeps any."""
        tables = self._algorithms.get(algorithm)
        if tables is None:
            slots = [shape.slots for _, _, shape in self._places(algorithm)]
            if slots and min(slots) > RESERVED_SLOTS:
                tables = self._algorithms.setdefault(algorithm, AlgorithmTables(algorithm, min(slots), self.wake))
        return tables

    def _places(self, algorithm: str) -> list[tuple[Instance, Any, TableShape]]:
        """Where tables of an algorithm are kept: the instance that serves it now, on each of its devices."""
        try:
            instance = self._catalogue.resolve("verify", algorithm).instance
        except VerifierError:
            return []
        if instance.manifest.operation("verify_enrolled", algorithm) is None:
            return []
        places = []
        for worker in instance.workers:
            build = instance.builds.get(worker.device.id)
            if build is not None and self._options.has(worker.device.id):
                _, defines = build.inputs(instance.manifest)
                places.append((instance, worker, TableShape.of(defines, gpu=worker.device.kind == "cuda")))
        return places

    def _run(self) -> None:
        while not self._closing:
            self._changed.clear()
            try:
                more = self._step()
            except Exception:
                # What failed is looked at again; until then batches go without tables.
                _log.exception("key_tables_failed")
                more = False
                time.sleep(_AFTER_FAULT_S)
            if not more and not self._closing:
                self._changed.wait(_LOOK_S)

    def _step(self) -> bool:
        """One round over all algorithms; whether there was something to build."""
        more = False
        for tables in list(self._algorithms.values()):
            self._find_devices(tables)
            tables.assign(time.monotonic())
            # Devices that are gone stop being waited for, and new ones are: before anything is built there.
            tables.take_stock(at_once=False)
            built = self._build(tables)
            tables.take_stock(at_once=not built)
            more |= built
        return more

    def _find_devices(self, tables: AlgorithmTables) -> None:
        """Takes notice of devices that came, went or started anew."""
        places = self._places(tables.algorithm)
        present = []
        for instance, worker, shape in places:
            name = (tables.algorithm, instance.id, worker.device.id)
            device = self._known.get(name)
            if device is None or not device.alive:
                device = DeviceTables(worker, instance, tables.algorithm, shape, tables.slots)
                self._known[name] = device
            present.append(device)
        keep = {(tables.algorithm, instance.id, worker.device.id) for instance, worker, _ in places}
        for name in [name for name in self._known if name[0] == tables.algorithm and name not in keep]:
            del self._known[name]
        tables.devices = present

    def _build(self, tables: AlgorithmTables) -> bool:
        """A few tables on every device, side by side."""
        devices = list(tables.devices)
        if not devices:
            return False
        with ThreadPoolExecutor(len(devices)) as pool:
            return any(list(pool.map(lambda device: self._build_on(tables, device), devices)))

    def _build_on(self, tables: AlgorithmTables, device: DeviceTables) -> bool:
        try:
            with self._catalogue.lease(device.any_key()) as lease:
                return lease.instance is device.instance and tables.build_some(device)
        except (VerifierError, TimeoutError) as error:
            # The device is going down, or the plugin is leaving: whoever takes over is told of by a listener.
            _log.info("key_tables_not_built", device=device.worker.device.id, error=str(error))
            return False
