"""Tuning: what is tried and chosen, that it is right before it is timed, and when a load uses what came of it."""

from __future__ import annotations

import dataclasses
from contextlib import contextmanager

import pytest
from typer.testing import CliRunner

from verifier.cli.plugin import app
from verifier.drivers import list_devices
from verifier.errors import SelfTestError
from verifier.manifest import Choice, parse_manifest
from verifier.registry import PluginSource, Registry, TuningFile, _tuning_run, common_folder, tune
from verifier.registry import _images as images_module
from verifier.registry._images import Build, images_for
from verifier.registry._tuning_search import search
from verifier.workers import Fleet

MANIFEST = """
name = "p"
version = "1.0.0"
abi = 1
source = "p.cu"

[variants.tables]
defines = { TABLES = 1 }

[variants.shared]
defines = { SHARED = 1 }
targets = ["gpu"]

[tunables]
THREADS = [64, 128, 256]

[tunables.BLOCKS]
values = [1, 2]
variants = ["tables"]
operations = ["sign/P"]

[tunables.MEMORY]
values = [1, 2]
measured = false

[tunables.LIMBS]
values = [4, 8]
targets = ["cpu"]

[tunables.ROOM]
values = [1, 2]
measured = false

[[operations]]
name = "verify"
algorithm = "P"
inputs = ["input"]
stages = ["p"]

[[operations]]
name = "sign"
algorithm = "P"
inputs = ["input"]
stages = ["p"]
"""
VERIFY, SIGN = "verify/P", "sign/P"


def choose(target, rate, **more):
    manifest = parse_manifest(MANIFEST, "p")
    order = []

    def measure(choice):
        order.append(choice.text)
        return rate(choice)

    return search(manifest, target, measure, **more), order


def tables_win(choice):
    speed = 2.0 if choice.variant == "tables" else 1.0
    threads = dict(choice.tunables).get("THREADS", 64)
    blocks = dict(choice.tunables).get("BLOCKS", 1)
    return {VERIFY: speed * {64: 1, 128: 3, 256: 2}[threads] / blocks, SIGN: speed * blocks}


def test_variants_first_then_one_tunable_after_the_other():
    found, order = choose("sm_90", tables_win)
    assert order == [
        "default",
        "tables",
        "shared",
        "tables THREADS=64",
        "tables THREADS=128",
        "tables THREADS=256",
        "tables BLOCKS=1 THREADS=128",
        "tables BLOCKS=2 THREADS=128",
    ]
    # BLOCKS matters to signing alone, as its manifest says, although verifying is slower with two.
    assert found.choice.text == "tables BLOCKS=2 THREADS=128"
    assert found.fastest(VERIFY).text == "tables THREADS=128"
    assert not any("ROOM" in text for text in order)  # a question of memory, not of speed
    assert found.rates[SIGN] == 4
    assert found.default_rates == {VERIFY: 1, SIGN: 1}


def test_what_is_not_for_the_device_is_not_tried():
    _, order = choose("x86-64-v3", lambda choice: {VERIFY: 1.0, SIGN: 1.0})
    assert "shared" not in order
    assert "default LIMBS=8" in order
    assert not any("BLOCKS" in text for text in order)  # it matters with tables only, and these did not win


def test_what_is_given_is_not_searched():
    manifest = parse_manifest(MANIFEST, "p")
    base = manifest.choice("", {"THREADS": 256, "MEMORY": 2})
    order = []
    found = search(manifest, "sm_90", lambda choice: order.append(choice.text) or tables_win(choice), base=base)
    assert order[:2] == ["default MEMORY=2 THREADS=256", "tables MEMORY=2 THREADS=256"]
    assert all("MEMORY=2" in text and "THREADS=256" in text for text in order)
    assert found.default_rates == {VERIFY: 2, SIGN: 1}


def test_noise_does_not_replace_the_default():
    found, _ = choose("sm_90", lambda choice: {VERIFY: 1.0 if choice == Choice() else 1.019, SIGN: 1.0})
    assert found.choice == Choice()


def test_what_fails_is_never_chosen():
    found, _ = choose("sm_90", lambda choice: None if choice.variant == "tables" else tables_win(choice))
    assert found.choice.text == "default THREADS=128"
    assert found.tried[Choice("tables")] is None
    assert found.gain(Choice("tables")) is None
    assert found.gain(found.choice) == pytest.approx(3**0.5)  # of two operations one is three times as fast


def test_the_time_is_bounded():
    def within(calls):
        left = iter([True] * calls)
        return choose("sm_90", tables_win, in_time=lambda: next(left, False))

    found, order = within(3)  # asked before a stage is built and before each measurement
    assert (found.choice.text, order) == ("tables", ["default", "tables", "shared"])
    found, order = within(2)
    assert (found.choice.text, order) == ("default", ["default", "tables"])  # half a stage decides nothing
    assert choose("sm_90", tables_win, in_time=lambda: False)[1] == ["default"]


def test_all_of_a_stage_is_prepared_at_once():
    stages = []
    choose("sm_90", tables_win, prepare=lambda choices: stages.append([choice.text for choice in choices]))
    assert stages[0] == ["tables", "shared"]
    assert len(stages) == 3


SPIN = """
DEVICE u64 spin(u64 sum) {
    NO_UNROLL for (u32 i = 0; i < SPIN; i++) sum += sum >> 7 ^ i;
    return sum;
}
"""


def slower_by_default(make):
    """A toy that spins: its variant `still` does not, and `wrong` is fast and wrong."""
    variants = (
        "[variants.still]\ndefines = { SPIN = 0 }\n\n[variants.wrong]\ndefines = { SPIN = 0, VALID_PARITY = 1 }\n\n"
    )
    return make(
        "spinner",
        manifest=lambda text: text.replace("[variants.wide_groups]", variants + "[variants.wide_groups]"),
        source=lambda text: (
            text.replace("#ifndef GROUP", "#ifndef SPIN\n#define SPIN 20000\n#endif\n#ifndef GROUP")
            .replace("DEVICE void sum_item", SPIN + "DEVICE void sum_item")
            .replace("sync(lane);", "if (spin(*sum) == 0x123456789abcdef) *sum = 0;\n    sync(lane);")
        ),
    )


@pytest.fixture
def one(worker_options, request):
    """A fleet of one device."""
    device = getattr(request, "param", "cpu")
    fleet = Fleet([device], worker_options)
    fleet.start()
    yield fleet
    fleet.close()


@contextmanager
def serving(fleet, options):
    registry = Registry(fleet, options)
    yield registry
    registry.unload("parity", wait=True)
    registry.close()


def check_tuned(make, fleet, options):
    source = PluginSource.read(slower_by_default(make), common_folder())
    steps = []
    tuned, found = tune(source, fleet, options, limit_s=300, told=steps.append)
    assert tuned.variant == "still"
    assert found.tried[Choice("wrong")] is None
    assert steps[0] == "default"
    assert tuned.rates["verify/PARITY"] > tuned.default_rates["verify/PARITY"] > 0
    return source, tuned


def test_on_the_cpu_and_the_next_load_uses_it(make, one, options, tmp_path):
    options = dataclasses.replace(options, cache=tmp_path / "images")
    source, tuned = check_tuned(make, one, options)
    with serving(one, options) as registry:
        assert registry.load(source).builds == {"cpu": "default"}  # nothing was kept yet
        TuningFile.of_cache(options.cache).put(tuned)
        chosen = registry.load(source, force=True).builds["cpu"]
        assert chosen == " ".join(("still", *(f"{name}={value}" for name, value in tuned.tunables.items())))
        assert registry.load(source, variant="default", force=True).builds == {"cpu": "default"}
    with serving(one, dataclasses.replace(options, choices={"parity": ("", tuned.tunables)})) as registry:
        assert registry.load(source).builds["cpu"].startswith("still")  # tunables that are set leave the variant open
    other = {"GROUP": next(value for value in (2, 4, 8) if value != tuned.tunables.get("GROUP", 4))}
    with serving(one, dataclasses.replace(options, choices={"parity": ("", other)})) as registry:
        # That is not what was tuned, so that it is not at hand where it was not among what was tried.
        assert registry.load(source).builds["cpu"].endswith(f"GROUP={other['GROUP']}")
    for changed in ({"tuned": False}, {"choices": {"parity": ("default", {})}}):
        with serving(one, dataclasses.replace(options, **changed)) as registry:
            assert registry.load(source).builds == {"cpu": "default"}


@pytest.mark.parametrize("one", ["fake:0"], indirect=True)
def test_on_a_device_with_memory_of_its_own(make, one, options):
    check_tuned(make, one, options)


@pytest.fixture(autouse=True)
def fakes(monkeypatch):
    monkeypatch.setenv("VERIFIER_FAKE_DEVICES", "1")


def test_items_that_a_slot_does_not_hold(make, one, options, monkeypatch):
    """On a device that wants more of them at first than there is room for."""
    monkeypatch.setattr(_tuning_run, "FIRST_ITEMS", {"cpu": 1 << 22})
    check_tuned(make, one, options)


@pytest.mark.gpu
def test_on_a_gpu(make, worker_options, options):
    ids = [device.id for device in list_devices() if device.kind == "cuda"]
    if not ids:
        pytest.skip("there is no GPU")
    fleet = Fleet(ids[:1], worker_options)
    fleet.start()
    try:
        check_tuned(make, fleet, options)
    finally:
        fleet.close()


def test_the_command_prints_and_keeps(make, tmp_path):
    def invoke(*arguments):
        return CliRunner().invoke(app, ["tune", *map(str, arguments)])

    done = invoke(make("p"), "--device", "cpu", "--limit-s", 1, "--cache-folder", tmp_path / "images")
    assert done.exit_code == 0, done.output
    assert "parity@1.0.0 on" in done.output
    assert "verify/PARITY" in done.output
    (kept,) = TuningFile.of_cache(tmp_path / "images").entries()
    assert kept.plugin == "parity@1.0.0"
    done = invoke(make("q"), "--tunable", "GROUP=3")
    assert (done.exit_code, "tunable GROUP: 3 is not one of 2, 4, 8" in done.output) == (1, True)


def test_a_default_that_is_wrong_is_an_error(make, one, options):
    folder = make("p", manifest=lambda text: text.replace("VALID_PARITY = 0", "VALID_PARITY = 1"))
    with pytest.raises(SelfTestError):
        tune(PluginSource.read(folder, common_folder()), one, options, limit_s=60)


def entry(source, on, **more):
    from verifier.registry import Tuned
    from verifier.registry._tuning import key_of

    name, target, driver, compiler, digest = key_of(on, source)
    fields = {
        "device": name,
        "target": target,
        "driver": driver,
        "compiler": compiler,
        "plugin": source.label,
        "digest": digest,
        "variant": "wide_groups",
        "tunables": {},
        "rates": {},
        "default_rates": {},
        "tuned_at": "",
    }
    return Tuned(**{**fields, **more})


def test_an_entry_holds_for_these_bytes_this_driver_and_this_compiler(make, one, tmp_path):
    file = TuningFile(tmp_path / "new" / "tuning.json")
    source = PluginSource.read(make("p"), common_folder())
    device = one.workers[0].device
    assert file.find(device, source) is None
    for field in ("device", "driver", "compiler", "digest", "target"):
        file.put(entry(source, device, **{field: "other"}))
        assert file.find(device, source) is None
    file.put(entry(source, device))
    file.put(entry(source, device, tunables={"GROUP": 2}))
    assert file.find(device, source).tunables == {"GROUP": 2}
    assert len(file.entries()) == 6  # the second stands in the place of the first
    file.path.write_text("{")
    assert file.find(device, source) is None


def test_a_load_never_compiles_for_it(make, one, options, tmp_path, monkeypatch):
    options = dataclasses.replace(options, cache=tmp_path)
    source = PluginSource.read(make("p"), common_folder())
    device = one.workers[0].device
    images_for(source, [Build(device.target)], cache=tmp_path, timeout_s=300)
    TuningFile.of_cache(tmp_path).put(entry(source, device))
    monkeypatch.setattr(images_module, "build_apart", None)
    with serving(one, options) as registry:
        assert registry.load(source).builds == {"cpu": "default"}
        TuningFile.of_cache(tmp_path).put(entry(source, device, variant="gone"))
        assert registry.load(source, force=True).builds == {"cpu": "default"}
