"""A client process that keeps the daemon busy and counts what it gets: run by test_swaps.py.

Lines on standard input name the phase that latencies are counted under; its end is the end. Then one JSON object on
standard output.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections import Counter, defaultdict

import grpc
import numpy as np

from verifier.v1 import verifier_pb2 as pb
from verifier.v1 import verifier_pb2_grpc as rpc

ITEMS = 2048
BATCHES = 16


def main(address: str, seed: int) -> None:
    random = np.random.default_rng(seed)
    data = [random.integers(0, 256, (ITEMS, 32), dtype=np.uint8) for _ in range(BATCHES)]
    expected = [np.packbits(d.sum(axis=1) % 2 == 0, bitorder="little").tobytes() for d in data]
    scheme = pb.Scheme(plugin="parity", input_kind=pb.INPUT_KIND_DIGEST)
    requests = [pb.VerifyRequest(items=ITEMS, scheme=scheme, input=pb.Column(data=d.tobytes())) for d in data]
    stub = rpc.VerifierStub(grpc.insecure_channel(address))
    phase = ["quiet"]
    done = threading.Event()

    def read_phases() -> None:
        for line in sys.stdin:
            phase[0] = line.strip()
        done.set()

    threading.Thread(target=read_phases, daemon=True).start()
    counts: Counter[str] = Counter()
    served_by: Counter[str] = Counter()
    latencies: defaultdict[str, list[float]] = defaultdict(list)
    turn = 0
    while not done.is_set():
        turn = (turn + 1) % BATCHES
        name, begin = phase[0], time.perf_counter()
        try:
            answer = stub.Verify(requests[turn], timeout=60)
        except grpc.RpcError as error:
            counts[f"failed: {error.code().name}: {error.details()}"] += 1
            continue
        latencies[name].append(time.perf_counter() - begin)
        whole = b"\xff" * (ITEMS // 8)
        right = answer.valid == expected[turn] and answer.decided == whole and answer.items == ITEMS
        counts["right" if right else "wrong"] += 1
        served_by[answer.served_by] += 1
    p99 = {name: float(np.percentile(seen, 99)) for name, seen in latencies.items()}
    calls = {name: len(seen) for name, seen in latencies.items()}
    json.dump({"counts": counts, "served_by": served_by, "p99_s": p99, "calls": calls}, sys.stdout)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
