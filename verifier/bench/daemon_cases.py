"""A daemon with the router on: from the scheduler's door (suite `daemon`), and from a caller's (suite `e2e`).

sm2-verify-8192-latency-daemon           in the daemon's process: queue, router, worker process, verdicts
sm2-verify-enrolled-8192-latency-daemon  the same with keys of a registered set, named by index: their tables stand on
                                         every device before anything is timed
sm2-verify-8192-latency-grpc             by a unary call over a Unix socket, parsing and serialising included
sm2-verify-unknown-grpc                  several callers at once, each with one call after the other
"""

from __future__ import annotations

import statistics
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, NamedTuple

import grpc
import numpy as np

from node_adapter.local import private_overrides
from verifier.bench.records import Record
from verifier.bench.rig import columns_of
from verifier.bench.signatures import FAULTS, SignatureSet, make_signatures
from verifier.config import load_settings
from verifier.daemon import Daemon
from verifier.drivers import DeviceInfo
from verifier.errors import SelfTestError
from verifier.keys import KeySet, NamedBatch
from verifier.model import Batch, Column, bits_of
from verifier.v1 import verifier_pb2, verifier_pb2_grpc

__all__ = ["daemon_records", "e2e_records", "running_daemon"]

CALLERS = 4
SETTLE_S = 30.0
TABLES_S = 120.0  # until the tables of all keys stand
KEYS, KEYS_CPU = 1000, 64  # that are registered
KEY_FAULTS = frozenset({"negated key", "key off the curve", "x not below p"})  # a registered set has other keys
ALGORITHM, CASE = "SM2", "sm2-verify"


class Answer(NamedTuple):
    """What a batch came to, in so far as it is recorded."""

    valid: np.ndarray[Any, np.dtype[np.uint8]]  # a bitmap
    device_ns: int
    device: str


@contextmanager
def running_daemon(devices: list[str]) -> Iterator[Daemon]:
    """A daemon with SM2 on a Unix socket of its own and without its other listeners."""
    with tempfile.TemporaryDirectory(prefix="verifier-bench-") as folder:
        overrides = private_overrides(
            {"load": ["sm2"]},
            server={"listen": [f"unix:{folder}/bench.sock"]},
            health={"listen": []},
            devices={"use": devices},
            log={"level": "error"},
        )
        with Daemon(load_settings(overrides=overrides)) as daemon:
            yield daemon


def daemon_records(daemon: Daemon, info: DeviceInfo, sizes: tuple[int, ...], runs: int) -> Iterator[Record]:
    """Latency of one batch at a time in the daemon's process."""
    resolved = daemon.core.registry.resolve("verify", ALGORITHM)
    for items in sizes:
        made = make_signatures(ALGORITHM, items, fault_share=0.01)
        columns = columns_of(made)
        batch = Batch(resolved.key({}), items, tuple(columns[name] for name in resolved.operation.inputs))

        def once(batch: Batch = batch) -> Answer:
            result = daemon.core.scheduler.submit(batch, caller="bench").result()
            return Answer(result.valid, result.timings.device_ns, result.device)

        yield _latency(CASE, once, made, info, runs, "daemon", ())
    yield _enrolled(daemon, info, sizes[-1], runs)


def _enrolled(daemon: Daemon, info: DeviceInfo, items: int, runs: int) -> Record:
    """Latency of one batch at a time whose keys are named, and stand in tables on the devices."""
    tables = daemon.core.tables
    if tables is None:
        raise SelfTestError(f"{CASE}-enrolled: this daemon keeps no tables")
    faults = [name for name in FAULTS if name not in KEY_FAULTS]
    made = make_signatures(ALGORITHM, items, keys=KEYS_CPU if info.unified else KEYS, fault_share=0.01, faults=faults)
    rows, indices = np.unique(made.keys, axis=0, return_inverse=True)
    keys = KeySet.of(ALGORITHM, "RAW_XY", len(rows), Column.fixed("key", rows.ravel(), 64, len(rows)))
    tables.register(keys)
    end = time.monotonic() + TABLES_S
    while not keys.view.whole:
        if time.monotonic() > end:
            raise SelfTestError(f"{CASE}-enrolled: the tables of {len(rows)} keys took longer than {TABLES_S:g} s")
        time.sleep(0.01)
    resolved = daemon.core.registry.resolve("verify", ALGORITHM)
    columns, key_at = {**columns_of(made), "key": Column.absent()}, resolved.operation.inputs.index("key")
    batch = NamedBatch(
        resolved.key({}),
        items,
        tuple(columns[name] for name in resolved.operation.inputs),
        key_at,
        keys,
        indices.reshape(-1).astype(np.uint32),
        np.empty(0, np.uint32),
    )

    def once() -> Answer:
        result = daemon.core.named.submit(batch, caller="bench").result()
        return Answer(result.valid, result.timings.device_ns, result.device)

    before = tables.stats()[ALGORITHM].hits
    record = _latency(f"{CASE}-enrolled", once, made, info, runs, "daemon", (), {"enrolled_keys": len(rows)})
    if tables.stats()[ALGORITHM].hits == before:
        raise SelfTestError(f"{CASE}-enrolled: the daemon did not go by its tables")
    tables.release(keys)
    return record


def e2e_records(daemon: Daemon, info: DeviceInfo, sizes: tuple[int, ...], batch: int, runs: int) -> Iterator[Record]:
    """Latency of a unary call, and the rate of several callers."""
    with grpc.insecure_channel(daemon.addresses[0], options=[("grpc.max_receive_message_length", -1)]) as channel:
        stub: Any = verifier_pb2_grpc.VerifierStub(channel)  # type: ignore[no-untyped-call]
        for items in sizes:
            made = make_signatures(ALGORITHM, items, fault_share=0.01)
            request = _request(made)

            def once(request: Any = request) -> Answer:
                answer = stub.Verify(request)
                return Answer(np.frombuffer(answer.valid, np.uint8), answer.timings.device_ns, answer.device)

            yield _latency(CASE, once, made, info, runs, "grpc", ("gRPC",))
        made = make_signatures(ALGORITHM, min(batch, 1 << 16), fault_share=0.01).tiled(batch)
        request = _request(made)
        seconds = []
        with ThreadPoolExecutor(CALLERS) as pool:
            for run in range(runs + 1):
                barrier = threading.Barrier(CALLERS + 1)

                def call(barrier: threading.Barrier = barrier) -> Any:
                    barrier.wait(SETTLE_S)
                    return stub.Verify(request)

                calls = [pool.submit(call) for _ in range(CALLERS)]
                barrier.wait(SETTLE_S)
                started = time.perf_counter()
                answers = [each.result() for each in calls]
                if run:
                    seconds.append(time.perf_counter() - started)
                for answer in answers:
                    _check_bits(np.frombuffer(answer.valid, np.uint8), made)
        yield Record.of_times(
            f"{CASE}-unknown-grpc{_suffix(info)}",
            info,
            batch,
            seconds,
            batch * CALLERS,
            includes=(*_path(info), "gRPC"),
            settings={"callers": CALLERS},
        )


def _latency(
    case: str,
    once: Callable[[], Answer],
    made: SignatureSet,
    info: DeviceInfo,
    runs: int,
    where: str,
    more: tuple[str, ...],
    settings: dict[str, str | int | float] | None = None,
) -> Record:
    """`once` runs the batch; records have the median of its seconds on the device and of the rest, too, and which
    device took most of the runs: the router chooses it."""
    seconds, on_device, devices = [], [], Counter[str]()
    for run in range(runs // 4 + runs):  # a daemon that has served nothing yet is slower
        started = time.perf_counter()
        answer = once()
        took = time.perf_counter() - started
        _check_bits(answer.valid, made)
        if run >= runs // 4:
            seconds.append(took)
            on_device.append(answer.device_ns / 1e9)
            devices[answer.device] += 1
    beside = statistics.median(whole - part for whole, part in zip(seconds, on_device, strict=True))
    ((served_on, _),) = devices.most_common(1)
    settings = {
        **(settings or {}),
        "served_on": served_on,
        "device_s": statistics.median(on_device),
        "beside_s": beside,
    }
    name = f"{case}-{made.items}-latency-{where}{_suffix(info)}"
    includes = (*_path(info), *more)
    return Record.of_times(
        name, info, made.items, seconds, made.items, unit="s", includes=includes, settings=settings
    )


def _request(made: SignatureSet) -> Any:
    scheme = verifier_pb2.Scheme(
        algorithm=verifier_pb2.ALGORITHM_SM2,
        input_kind=verifier_pb2.INPUT_KIND_DIGEST,
        signature_encoding=verifier_pb2.SIGNATURE_ENCODING_RAW_RS,
        key_encoding=verifier_pb2.KEY_ENCODING_RAW_XY,
    )
    return verifier_pb2.VerifyRequest(
        items=made.items,
        scheme=scheme,
        input=verifier_pb2.Column(data=made.digests.tobytes()),
        signature=verifier_pb2.Column(data=made.signatures.tobytes()),
        key=verifier_pb2.Column(data=made.keys.tobytes()),
    )


def _check_bits(valid: np.ndarray[Any, np.dtype[np.uint8]], made: SignatureSet) -> None:
    bits = bits_of(valid, made.items)
    if not np.array_equal(bits, made.valid):
        raise SelfTestError(f"{CASE}: {int((bits != made.valid).sum())} of {made.items} verdicts are wrong")


def _suffix(info: DeviceInfo) -> str:
    return "-cpu" if info.unified else ""


def _path(info: DeviceInfo) -> tuple[str, ...]:
    return ("parsing", "queue") if info.unified else ("transfer", "parsing", "queue")
