"""What a call costs its caller: a request written by protobuf, and by the client, which writes columns itself.

    python bench/client_call.py [--items 8192] [--runs 200]
    python bench/client_call.py --room

Milliseconds, medians of runs in turns, malloc as the system has it, against a daemon on the CPU with the null plugin.
Writing is of one request's bytes; a call's processor time is that of the calling process, gRPC's threads included.
With --room: calls whose columns go in messages, and the same with columns copied into shared memory, by size.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import grpc
import numpy as np
from front_end import pb, running

from node_adapter.client import (
    CHANNEL_OPTIONS,
    Algorithm,
    InputKind,
    KeyEncoding,
    Scheme,
    SharedMemory,
    SignatureEncoding,
    VerifierClient,
    _shared_memory,
)
from node_adapter.client._wire import column_field
from verifier.bench.signatures import SignatureSet, make_signatures
from verifier.v1 import verifier_pb2_grpc

SCHEME = Scheme(Algorithm.SM2, InputKind.DIGEST, SignatureEncoding.RAW_RS, KeyEncoding.RAW_XY)
ROOM_ITEMS = (1024, 2048, 3072, 4096, 6144, 8192, 16384)
GeneratedStub: Any = verifier_pb2_grpc.VerifierStub


def message_of(made: SignatureSet) -> Any:
    """The request as a message of protobuf's."""
    return pb.VerifyRequest(
        items=made.items,
        scheme=pb.Scheme(
            algorithm=SCHEME.algorithm,
            input_kind=SCHEME.input_kind,
            signature_encoding=SCHEME.signature_encoding,
            key_encoding=SCHEME.key_encoding,
        ),
        input=pb.Column(data=made.digests.tobytes()),
        signature=pb.Column(data=made.signatures.tobytes()),
        key=pb.Column(data=made.keys.tobytes()),
    )


def columns_of(made: SignatureSet) -> bytes:
    """The same request's columns as the client writes them."""
    rest = pb.VerifyRequest(items=made.items)
    columns = (("input", made.digests), ("signature", made.signatures), ("key", made.keys))
    fields = [part for name, data in columns for part in column_field("Verify", name, data.reshape(-1).data, b"")]
    return b"".join([rest.SerializeToString(), *fields])


def in_turns(ways: dict[str, Callable[[], object]], runs: int, clock: Callable[[], float]) -> list[float]:
    """Prints each way's median, and returns them."""
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(runs):
        for name, run in ways.items():
            began = clock()
            run()
            seconds[name].append(clock() - began)
    medians = [float(np.median(times)) for times in seconds.values()]
    for name, median in zip(seconds, medians, strict=True):
        print(f"{name}: {median * 1e3:.2f} ms", flush=True)
    return medians


def by_room(runs: int) -> None:
    """From how many bytes on the client's room in shared memory saves a caller time."""
    _shared_memory._LEAST_LENT_BYTES = 0
    made = make_signatures("SM2", 1024, keys=64)
    with (
        running("cpu", "null", 1) as daemon,
        SharedMemory(daemon.memory, 0, room=16 << 20) as memory,
        VerifierClient(daemon.address) as plain,
        VerifierClient(daemon.address, shared_memory=memory) as lending,
    ):
        for items in ROOM_ITEMS:
            tiled = made.tiled(items)
            columns = tiled.digests, tiled.signatures, tiled.keys
            print(f"{items} items, {sum(column.nbytes for column in columns) >> 10} KiB, processor time:")
            ways: dict[str, Callable[[], object]] = {
                "in messages": lambda columns=columns: plain.verify(SCHEME, *columns),
                "in shared memory": lambda columns=columns: lending.verify(SCHEME, *columns),
            }
            in_messages, in_memory = in_turns(ways, runs, time.process_time)
            print(f"ratio: {in_memory / in_messages:.2f}", flush=True)


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--items", type=int, default=8192)
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--room", action="store_true")
    options = parser.parse_args()
    if options.room:
        by_room(options.runs)
        return
    made = make_signatures("SM2", 1024, keys=64).tiled(options.items)
    whole = message_of(made)
    if pb.VerifyRequest.FromString(columns_of(made)).signature != whole.signature:
        raise SystemExit("the two ways do not write the same columns")
    writing: dict[str, Callable[[], object]] = {
        "written by protobuf": lambda: message_of(made).SerializeToString(),
        "written by the client": lambda: columns_of(made),
    }
    in_turns(writing, options.runs, time.perf_counter)
    with (
        running("cpu", "null", 1) as daemon,
        VerifierClient(daemon.address) as client,
        grpc.insecure_channel(daemon.address, CHANNEL_OPTIONS) as channel,
    ):
        generated = GeneratedStub(channel)
        calls: dict[str, Callable[[], object]] = {
            "a call through protobuf": lambda: generated.Verify(message_of(made)),
            "a call by the client": lambda: client.verify(SCHEME, made.digests, made.signatures, made.keys),
        }
        for name, clock in (("clock", time.perf_counter), ("processor", time.process_time)):
            print(f"{name}:")
            in_turns(calls, options.runs, clock)


if __name__ == "__main__":
    main()
