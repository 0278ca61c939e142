"""Registered keys through a daemon: tables are built, used and shown, and verdicts stay; without the setting too."""

from __future__ import annotations

import os
import signal
import time

import numpy as np
import pytest
from _daemon_process import DaemonProcess, bits
from _known_answers import codes_of

from verifier.bench.signatures import make_signatures
from verifier.model import Code
from verifier.v1 import verifier_pb2 as pb

TIMEOUT_S = 120
DEVICES = ("cpu:0", "cpu:1")


@pytest.fixture(scope="module")
def made():
    return make_signatures("SM2", 300, seed=41, keys=6, fault_share=0.2, faults=("wrong s", "r is n", "negated key"))


def registered(daemon: DaemonProcess, made):
    """A set of the distinct keys and one that is none, and each item's index."""
    rows, indices = np.unique(made.keys, axis=0, return_inverse=True)
    request = pb.RegisterKeysRequest(
        algorithm=pb.ALGORITHM_SM2,
        key_encoding=pb.KEY_ENCODING_RAW_XY,
        items=len(rows) + 1,
        keys=pb.Column(data=rows.tobytes() + bytes(64)),
    )
    answer = daemon.stub.RegisterKeys(request, timeout=TIMEOUT_S)
    assert list(answer.problems.code) == [pb.PROBLEM_CODE_KEY_NOT_ON_CURVE]
    return answer.key_set, np.append(indices.reshape(-1), [len(rows), len(rows) + 1])


def request_of(made, key_set: int, indices) -> pb.VerifyRequest:
    """The items, and two whose index names no key."""
    scheme = pb.Scheme(
        algorithm=pb.ALGORITHM_SM2,
        input_kind=pb.INPUT_KIND_DIGEST,
        signature_encoding=pb.SIGNATURE_ENCODING_RAW_RS,
        key_encoding=pb.KEY_ENCODING_INDEX,
    )
    return pb.VerifyRequest(
        items=made.items + 2,
        scheme=scheme,
        input=pb.Column(data=made.digests.tobytes() + made.digests[:2].tobytes()),
        signature=pb.Column(data=made.signatures.tobytes() + made.signatures[:2].tobytes()),
        key=pb.Column(data=indices.astype("<u4").tobytes()),
        key_set=key_set,
    )


def check(daemon: DaemonProcess, made, request: pb.VerifyRequest) -> None:
    answer = daemon.stub.Verify(request, timeout=TIMEOUT_S)
    assert codes_of(answer) == [*made.codes.tolist(), Code.KEY_INDEX, Code.KEY_INDEX]
    assert bits(answer.decided, request.items).all()


def key_metrics(daemon: DaemonProcess) -> dict[str, float]:
    return {name: value for name, value in daemon.metrics().items() if "key_table" in name}


def until_enrolled(daemon: DaemonProcess, keys: int, builds: int) -> None:
    end = time.monotonic() + TIMEOUT_S
    while True:
        shown = key_metrics(daemon)
        enrolled = shown.get('verifier_key_table_keys{algorithm="SM2",state="enrolled"}')
        built = shown.get('verifier_key_table_events_total{algorithm="SM2",event="built"}')
        if enrolled == keys and built >= builds:
            return
        assert time.monotonic() < end, shown
        time.sleep(0.05)


def test_tables_are_built_used_and_shown(tmp_path, made):
    daemon = DaemonProcess(tmp_path, ["sm2"], devices=DEVICES, cache=None)
    try:
        key_set, indices = registered(daemon, made)
        request = request_of(made, key_set, indices)
        keys = int(indices.max()) - 1
        check(daemon, made, request)  # whether its tables are there already or not
        until_enrolled(daemon, keys, 2 * keys)
        name = 'verifier_key_table_items_total{algorithm="SM2",result="hit"}'
        before = key_metrics(daemon)[name]
        check(daemon, made, request)
        assert key_metrics(daemon)[name] == before + request.items
        for device in DEVICES:
            assert key_metrics(daemon)[f'verifier_key_table_bytes{{algorithm="SM2",device="{device}"}}'] > 0
        # A second set of the same keys has the same tables.
        again, _ = registered(daemon, made)
        check(daemon, made, request_of(made, again, indices))
        assert key_metrics(daemon)['verifier_key_table_events_total{algorithm="SM2",event="built"}'] == 2 * keys
        os.kill(daemon.workers()[0], signal.SIGKILL)
        check(daemon, made, request)
        until_enrolled(daemon, keys, 3 * keys)
        check(daemon, made, request)
        for handle in (key_set, again):
            daemon.stub.ReleaseKeys(pb.ReleaseKeysRequest(key_set=handle), timeout=TIMEOUT_S)
        until_enrolled(daemon, 0, 3 * keys)
        limits = daemon.stub.GetLimits(pb.GetLimitsRequest(), timeout=TIMEOUT_S)
        assert {entry.operation for entry in limits.operations} == {"verify"}  # what callers ask for
    finally:
        assert daemon.stop() == 0


@pytest.mark.long  # another build of the plugin
def test_without_enrolment_keys_go_along(tmp_path, made):
    daemon = DaemonProcess(tmp_path, ["sm2"], "keys.enroll=false", cache=None)
    try:
        key_set, indices = registered(daemon, made)
        check(daemon, made, request_of(made, key_set, indices))
        assert key_metrics(daemon) == {}
    finally:
        assert daemon.stop() == 0
