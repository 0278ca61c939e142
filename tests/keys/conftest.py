"""Two workers that share the CPU, the real plugins, and tables of keys on both."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pytest
from _waiting import until

from verifier.bench.signatures import SignatureSet, make_signatures
from verifier.keys import KeyScheduler, KeySet, KeyTables, NamedBatch, TableOptions, resolve
from verifier.model import Batch, BatchResult, Code, Column
from verifier.registry import Registry, RegistryOptions
from verifier.scheduling import Scheduler
from verifier.schemes import DEFAULT_SM2_USER_ID
from verifier.v1 import verifier_pb2 as pb
from verifier.workers import Fleet, WorkerOptions

from ._answered_by_hand import Bench

WAIT_S = 120
PLUGIN = {"SM2": "sm2", "ECDSA_P256": "ecdsa", "ECDSA_SECP256K1": "ecdsa"}


class Stack:
    """What a daemon has of these, without its front end."""

    def __init__(self, algorithm: str, devices: Sequence[str] = ("cpu:0", "cpu:1")) -> None:
        self.algorithm = algorithm
        options = WorkerOptions(slots=4, slot_bytes=4 << 20, streams=2, backoff_first_s=0.01)
        self.fleet = Fleet(devices, options)
        self.fleet.start()
        self.registry = Registry(self.fleet, RegistryOptions(trust="any", cpu_chunk_items=64))
        self.registry.load(PLUGIN[algorithm])
        self.scheduler = Scheduler(self.fleet.workers, self.registry.lease)
        for worker in self.fleet.workers:
            worker.on_room = self.scheduler.wake
        self.scheduler.start()
        self.plain = KeyScheduler(self.scheduler, self.registry, None)
        self.fleet.on_state(lambda _: self.tables.wake())
        self.open_tables()

    def open_tables(self, devices: tuple[str, ...] = ("auto",)) -> None:
        """Tables of their own, empty to the host; what devices have under older generations does not count."""
        self.tables = KeyTables(self.registry, TableOptions(devices))
        self.by_tables = KeyScheduler(self.scheduler, self.registry, self.tables)
        self.tables.start()

    def close(self) -> None:
        self.tables.close()
        self.scheduler.close()
        self.registry.close()
        self.fleet.close()

    def key(self, encoding: int = pb.KEY_ENCODING_RAW_XY):
        resolved = self.registry.resolve("verify", self.algorithm)
        constant = DEFAULT_SM2_USER_ID if self.algorithm == "SM2" else b""
        return resolved.key({"key_encoding": encoding}, constant)

    def named(self, keys: KeySet, digests, signatures, indices) -> tuple[NamedBatch, np.ndarray]:
        indices, refused, _ = resolve(keys, np.asarray(indices, np.uint32), 1 << 30)
        items = len(indices)
        columns = (Column(digests.reshape(-1), 32), Column(signatures.reshape(-1), 64), Column.absent())
        return NamedBatch(self.key(), items, columns, 2, keys, indices, refused), refused

    def batch(self, made: SignatureSet) -> Batch:
        columns = (made.digests, made.signatures, made.keys)
        inputs = tuple(Column(c.reshape(-1), c.shape[1]) for c in columns)
        return Batch(self.key(), made.items, inputs)

    def stats(self):
        return self.tables.stats()[self.algorithm]

    def enroll(self, keys: KeySet) -> None:
        """Registers a set and waits until all of it that finds room serves everywhere."""
        self.tables.register(keys)
        until(lambda: keys.view.whole)


def set_of(made: SignatureSet) -> tuple[KeySet, np.ndarray]:
    """The distinct keys of a batch, some twice, and each item's index."""
    rows, indices = np.unique(made.keys, axis=0, return_inverse=True)
    indices = indices.reshape(-1)
    usable = np.ones(len(rows), np.bool_)
    usable[indices[(made.codes >= Code.KEY_LENGTH) & (made.codes <= Code.KEY_SPKI)]] = False
    twice = np.concatenate([rows, rows[:3]])
    keys = KeySet.of(
        made.algorithm, "RAW_XY", len(twice), Column(twice.reshape(-1), 64), np.append(usable, usable[:3])
    )
    # Items of the first three keys name the second copy.
    return keys, np.where((indices < 3) & (np.arange(len(indices)) % 2 == 1), indices + len(rows), indices)


def same(left: BatchResult, right: BatchResult, but: np.ndarray | None = None) -> None:
    """Equal bit for bit, but for items that nobody reads."""
    read = np.ones(left.items, np.bool_)
    if but is not None:
        read[but] = False
    np.testing.assert_array_equal(left.codes[read], right.codes[read])
    for ours, theirs in ((left.valid, right.valid), (left.decided, right.decided)):
        bits = [np.unpackbits(bitmap, count=left.items, bitorder="little")[read] for bitmap in (ours, theirs)]
        np.testing.assert_array_equal(*bits)


@pytest.fixture(scope="module")
def sm2() -> Iterator[Stack]:
    stack = Stack("SM2")
    yield stack
    stack.close()


@pytest.fixture
def fresh(sm2) -> Stack:
    """The SM2 stack with empty tables."""
    sm2.tables.close()
    sm2.open_tables()
    return sm2


@pytest.fixture(scope="session")
def signatures() -> SignatureSet:
    return make_signatures("SM2", 600, seed=5, keys=12, fault_share=0.3)


@pytest.fixture
def bench() -> Bench:
    return Bench()
