"""A run: what it measures in which order, what a quick one leaves out, and that wrong answers are never timed."""

from __future__ import annotations

import time

import pytest
from typer.testing import CliRunner

from verifier.bench import sweeps as sweeps_module
from verifier.bench.cases import CASES, Settings, check_codes
from verifier.bench.counts import Counts
from verifier.bench.daemon_cases import daemon_records, e2e_records, running_daemon
from verifier.bench.limits import CEILINGS, FIELDS, Limits, measure_limits, tightest
from verifier.bench.rig import Rig, columns_of
from verifier.bench.run import Plan, Run
from verifier.bench.signatures import make_signatures
from verifier.bench.sweeps import Point, points, sweep_records
from verifier.cli.bench import app
from verifier.drivers import list_devices
from verifier.errors import SelfTestError
from verifier.manifest import parse_manifest
from verifier.model import Code
from verifier.registry import shipped_folder

(SM2,) = (case for case in CASES if case.name == "sm2-verify")


@pytest.fixture(autouse=True)
def compile_fast(monkeypatch):
    monkeypatch.setenv("CXXFLAGS", "-O1")


@pytest.fixture(scope="module")
def cpu():
    return next(device for device in list_devices() if device.id == "cpu")


LIMITS = Limits(1e12, 1e12, 5e10, 5e10, 5e10, 1e-5, dict.fromkeys(FIELDS, 1e11), dict.fromkeys(FIELDS, 2e11))


def test_the_tightest_limit_counts():
    counts = Counts(1000, 2000, 0, 0, 0, 0)
    assert LIMITS.of_field("SM2", counts) == ("field multiplications", pytest.approx(5e7))
    assert LIMITS.of_field("SM2", None) is None
    assert tightest(LIMITS.of_link(160), LIMITS.of_field("SM2", counts))[0] == "field multiplications"
    assert tightest(LIMITS.of_link(16_000), LIMITS.of_field("SM2", counts))[0] == "copy in"
    assert tightest(None, None) is None


def test_ceilings_are_measured_and_no_compiler_skips_the_work():
    with Rig("cpu", CEILINGS, shipped_folder() / "common", slot_bytes=1 << 22, threads=1) as rig:
        limits = measure_limits(rig, runs=1)
        names = [record.case for record in limits.records(rig)]
    assert "limit-field-products-sm2" in names
    assert "limit-copy-in" not in names  # a CPU works in place
    for rate in (*limits.products.values(), *limits.squares.values()):
        assert 1e5 < rate < 5e8  # a thread; far above it the loop would be empty


def test_a_case_on_the_cpu(cpu):
    root = shipped_folder()
    with Rig("cpu", root / "sm2", root / "common", slot_bytes=1 << 22) as rig:
        records = list(SM2.measure(rig, LIMITS, Settings(64, 2, 0)))
        assert [record.case for record in records] == ["sm2-verify-unknown-cpu", "sm2-verify-1-latency-cpu"]
        assert records[0].limit == "field multiplications"
        assert records[0].median > 0
        made = make_signatures("SM2", 64)
        slot = rig.fill("verify", "SM2", columns_of(made), 64)
        rig.run(slot)
        slot.codes[3] = Code.UNDECIDED
        with pytest.raises(SelfTestError, match=r"1 of 64 wrong; item 3 is <Code\.UNDECIDED"):
            check_codes(slot, made, "a spoilt run")


MANIFEST = """
name = "p"
version = "1.0.0"
abi = 1
source = "p.cu"

[variants.a]
defines = { A = 1 }

[variants.b]
defines = { B = 1 }
targets = ["gpu"]

[tunables]
THREADS_A = [64, 128]
WINDOW = [1, 2]

[tunables.THREADS_B]
values = [32]
variants = ["b"]

[[operations]]
name = "verify"
algorithm = "SM2"
inputs = ["input"]
stages = ["p"]
"""


def test_a_case_on_a_device_with_memory_of_its_own(monkeypatch):
    """Beside one batch at a time: batch after batch, and kernels alone."""
    monkeypatch.setenv("VERIFIER_FAKE_DEVICES", "1")
    with Rig("fake:0", shipped_folder() / "sm2", shipped_folder() / "common", slot_bytes=1 << 22) as rig:
        records = list(SM2.measure(rig, LIMITS, Settings(512, 2, 0)))
        assert [record.case for record in records] == [
            "sm2-verify-unknown",
            "sm2-verify-unknown-sustained",
            "sm2-verify-unknown-kernel",
            "sm2-verify-1-latency",
        ]


def test_the_points_of_each_axis():
    manifest = parse_manifest(MANIFEST, "p")
    gpu = {axis: points(axis, manifest, "sm_90", 1024) for axis in ("batch", "streams", "threads", "variants")}
    assert [point.batch for point in gpu["batch"]] == [1 << k for k in range(11)]
    assert [point.options.streams for point in gpu["streams"]] == [1, 2, 4, 8]
    assert [(point.setting[1], point.choice.variant) for point in gpu["threads"]] == [
        ("THREADS_A=64", "default"),
        ("THREADS_A=128", "default"),
        ("THREADS_B=32", "b"),  # with what it matters to
    ]
    assert [point.choice.text for point in gpu["variants"]] == ["default", "a", "b"]
    assert [point.choice.text for point in points("variants", manifest, "aarch64", 8)] == ["default", "a"]
    assert points("streams", manifest, "aarch64", 8) == []  # a CPU works in place
    assert [point.options.bitmap_memory for point in points("bitmaps", manifest, "sm_90", 8)] == [
        *("managed", "pinned", "device")
    ]


def test_a_sweep_says_its_point_in_every_record(cpu, monkeypatch):
    few = [
        Point(("batch", 2), 2),
        Point(("batch", 64), 64),
        Point(("keys", "SEC1_COMPRESSED"), 64, keys="SEC1_COMPRESSED"),
    ]
    monkeypatch.setattr(sweeps_module, "points", lambda *_: few)
    records = list(sweep_records(SM2, "batch", "cpu", cpu.target, shipped_folder(), 64, 2))
    assert [(record.batch, record.settings.get("batch")) for record in records] == [(2, 2), (64, 64), (64, None)]
    assert records[2].settings["keys"] == "SEC1_COMPRESSED"  # and its verdicts were the same


def test_keys_are_swept_with_faults_that_a_compressed_key_can_have(cpu):
    """4,096 items, one in a hundred spoilt: some of each fault."""
    records = list(sweep_records(SM2, "keys", "cpu", cpu.target, shipped_folder(), 4096, 1))
    assert [record.settings["keys"] for record in records] == ["RAW_XY", "SEC1_COMPRESSED"]


def test_a_run_begins_nothing_after_its_time():
    times = iter([0.0, 1.0, 99.0, 99.0, 99.0])
    told = []
    run = Run(
        Plan("cpu", ("kernels", "pipeline", "daemon"), ("sm3", "sha256"), quick=True, peers=False, limit_s=10),
        told.append,
        lambda: next(times),
    )
    records = list(run.records())
    assert told == ["limits", "sm3"]
    assert [r.case for r in records if not r.case.startswith("limit-")] == ["sm3-cpu"]
    assert run.left_out == ["sha256", "daemon and e2e"]


def test_a_daemon_measured_from_both_doors(cpu):
    with running_daemon(["cpu"]) as daemon:
        inside = list(daemon_records(daemon, cpu, (1, 40), 2))
        outside = list(e2e_records(daemon, cpu, (3,), 16, 1))
    assert [record.case for record in inside] == [
        "sm2-verify-1-latency-daemon-cpu",
        "sm2-verify-40-latency-daemon-cpu",
        "sm2-verify-enrolled-40-latency-daemon-cpu",
    ]
    for record in (*inside, outside[0]):
        assert record.rate <= record.settings["p99"]  # the slower one of two runs
    assert [record.case for record in outside] == ["sm2-verify-3-latency-grpc-cpu", "sm2-verify-unknown-grpc-cpu"]
    assert "gRPC" in outside[0].includes
    assert outside[1].settings["callers"] == 4


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--suite", "kernel"], "there are kernels, pipeline, daemon, e2e"),
        (["--sweep", "size"], "there are batch, streams, threads, variants, keys, bitmaps"),
        (["--case", "nothing", "--device", "cpu"], "no case is named nothing; there are sm2-verify,"),
        (["--device", "cuda:99"], "cuda"),
        (["plot", "/nowhere.jsonl"], "/nowhere.jsonl: No such file"),
    ],
)
def test_what_is_not_there_is_named(arguments, message):
    done = CliRunner().invoke(app, arguments, env={"COLUMNS": "200"})
    assert done.exit_code != 0
    assert message in " ".join(done.output.split())


@pytest.mark.long
def test_a_quick_run_takes_less_than_two_minutes(monkeypatch):
    monkeypatch.delenv("CXXFLAGS")
    began = time.monotonic()
    done = CliRunner().invoke(app, ["--quick", "--device", "cpu"])
    assert done.exit_code == 0, done.output
    assert "sm2-verify-unknown-cpu" in done.output
    assert time.monotonic() - began < 120, "the acceptance of `verifier bench --quick`"
