"""What a call costs its caller: a request written by protobuf, and by the client, which writes columns itself.

    python bench/client_call.py [--items 8192] [--runs 200]

Milliseconds, medians of runs in turns, malloc as the system has it, against a daemon on the CPU with the null plugin.
Writing is of one request's bytes; a call's processor time is that of the calling process, gRPC's threads included.
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
    SignatureEncoding,
    VerifierClient,
)
from node_adapter.client._wire import column_field
from verifier.bench.signatures import SignatureSet, make_signatures
from verifier.v1 import verifier_pb2_grpc

SCHEME = Scheme(Algorithm.SM2, InputKind.DIGEST, SignatureEncoding.RAW_RS, KeyEncoding.RAW_XY)
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


def in_turns(ways: dict[str, Callable[[], object]], runs: int, clock: Callable[[], float]) -> None:
    """Prints each way's median."""
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(runs):
        for name, run in ways.items():
            began = clock()
            run()
            seconds[name].append(clock() - began)
    for name, times in seconds.items():
        print(f"{name}: {float(np.median(times)) * 1e3:.2f} ms", flush=True)


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--items", type=int, default=8192)
    parser.add_argument("--runs", type=int, default=200)
    options = parser.parse_args()
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
