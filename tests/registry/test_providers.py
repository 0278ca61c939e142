"""Libraries as providers: used where they are the ones that the plugin names, and give the right answers; else the
plugin's own source serves, and says why."""

from __future__ import annotations

import dataclasses
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
import structlog
from _asking import served_by
from _library_package import PACKAGE, archive, install
from _waiting import until
from structlog.testing import capture_logs

from verifier.drivers.build import build_image, host_target
from verifier.errors import ManifestError, ProviderError, SelfTestError
from verifier.manifest import Choice, load_manifest, parse_manifest
from verifier.model import Batch, Code, Column
from verifier.registry import (
    PluginSource,
    Registry,
    State,
    Tuned,
    TuningFile,
    _loader,
    common_folder,
    usable_variants,
)
from verifier.registry._tuning import key_of
from verifier.workers import Fleet, WorkerOptions

# An item's parity, by the library: right, always even, or the end of the process.
RIGHT = 'extern "C" unsigned library_parity(unsigned sum) { return sum & 1; }'
WRONG = 'extern "C" unsigned library_parity(unsigned) { return 0; }'
CRASH = 'extern "C" unsigned library_parity(unsigned) { __builtin_trap(); }'
# Right until it meets a sum that is in no known answer.
LATE = 'extern "C" unsigned library_parity(unsigned sum) { if (sum == 0xEE) __builtin_trap(); return sum & 1; }'

TABLE = """
[variants.provided]
defines = {{ PROVIDED = 1 }}
targets = ["cpu"]

[variants.provided.provider]
package = "{package}"
file = "library.a"
sha256 = {{ "1.2.3" = "{digest}" }}
cpu_flags = [{flags}]

[tunables]
"""


def with_provider(digest: str, flags: str = "", package: str = PACKAGE):
    return lambda text: text.replace("[tunables]", TABLE.format(digest=digest, flags=flags, package=package))


def calling(text: str) -> str:
    own = "const u8 parity = batch.state[batch.item_scratch[item]];"
    assert own in text
    call = f"#ifdef PROVIDED\nconst u8 parity = library_parity(batch.item_scratch[item]);\n#else\n{own}\n#endif"
    declared = '#include "sums.cuh"\nextern "C" unsigned library_parity(unsigned sum);'
    return text.replace(own, call).replace('#include "sums.cuh"', declared)


@pytest.fixture
def installed(tmp_path, monkeypatch, make):
    """installed(code) is a plugin's folder whose provider's library, of that code, is installed."""

    def installed(code: str, **options: str) -> Path:
        build = tmp_path / "library"
        build.mkdir()
        digest = install(tmp_path / "site", archive(build, code), monkeypatch)
        return make("p", manifest=with_provider(digest, **options), source=calling)

    return installed


@pytest.fixture
def logs(monkeypatch):
    """What the loader logs, whatever an earlier test has set up."""
    configured, before = structlog.is_configured(), structlog.get_config()
    structlog.reset_defaults()
    monkeypatch.setattr(_loader, "_log", structlog.get_logger("verifier.registry"))
    with capture_logs() as entries:
        yield entries
    structlog.reset_defaults()
    if configured:
        structlog.configure(**before)


def built(status) -> set[str]:
    return set(status.builds.values())


def test_an_installed_library_serves(registry, installed, logs):
    folder = installed(RIGHT)
    status = registry.load(folder)
    assert status.builds == {"cpu:0": "provided", "cpu:1": "provided"}
    assert served_by(registry) == status.label
    used = [(entry["device"], entry["variant"], entry["library"]) for entry in logs if entry["event"] == "provider"]
    assert used == [(device, "provided", f"{PACKAGE} 1.2.3") for device in ("cpu:0", "cpu:1")]


def test_one_that_is_not_automatic_serves_by_name_only(registry, installed, tmp_path):
    folder = installed(RIGHT)
    manifest = folder / "plugin.toml"
    manifest.write_text(manifest.read_text().replace("file = ", "automatic = false\nfile = ", 1))
    assert built(registry.load(folder)) == {"default"}
    assert built(registry.load(folder, variant="provided", force=True)) == {"provided"}


def test_who_chooses_stands_above_it(fleet, options, installed):
    folder = installed(RIGHT)
    for changed, variant, expected in (
        ({}, "default", "default"),
        ({}, "wide_groups", "wide_groups"),
        ({"choices": {"parity": ("default", {})}}, "", "default"),
        ({"choices": {"parity": ("", {"GROUP": 2})}}, "", "provided GROUP=2"),
        ({"providers": False}, "", "default"),
        ({"providers": False}, "provided", "provided"),
    ):
        registry = Registry(fleet, dataclasses.replace(options, **changed))
        try:
            assert built(registry.load(folder, variant=variant)) == {expected}
            assert served_by(registry)
            registry.unload("parity", wait=True)
        finally:
            registry.close()


@pytest.mark.parametrize(
    ("missing", "problem"),
    [
        ({"package": "verifier-no-such-library"}, "verifier-no-such-library is not installed: pip install"),
        ({"flags": '"sse2", "no_such_flag"'}, f"{PACKAGE}: this CPU has not no_such_flag"),
    ],
)
def test_without_the_library_or_the_instructions_the_source_serves(registry, installed, logs, missing, problem):
    folder = installed(RIGHT, **missing)
    status = registry.load(folder)
    assert built(status) == {"default"}
    assert served_by(registry) == status.label
    (reason,) = {entry["reason"] for entry in logs if entry["event"] == "provider_not_used"}
    assert reason.startswith(problem)
    with pytest.raises(ProviderError, match=problem.split(":")[0]):
        registry.load(folder, variant="provided", force=True)
    assert served_by(registry) == status.label


def test_what_is_tuned_holds_for_the_libraries_at_hand(fleet, installed, monkeypatch):
    source = PluginSource.read(installed(RIGHT), common_folder())
    device = fleet.workers[0].device
    assert usable_variants(source.manifest, device.target) == ["wide_groups", "provided"]
    assert usable_variants(source.manifest, "sm_90") == ["wide_groups"]
    with_library = key_of(device, source)
    assert with_library[3].endswith(f", {PACKAGE} 1.2.3")
    monkeypatch.setattr(sys, "path", sys.path[1:])
    assert usable_variants(source.manifest, device.target) == ["wide_groups"]
    assert key_of(device, source)[3] == with_library[3].removesuffix(f", {PACKAGE} 1.2.3")


def test_a_tuned_library_serves_only_while_the_settings_want_libraries(fleet, options, installed, tmp_path):
    options = dataclasses.replace(options, tuned=True, cache=tmp_path / "images")
    source = PluginSource.read(installed(RIGHT), common_folder())
    name, target, driver, compiler, digest = key_of(fleet.workers[0].device, source)
    tuned = Tuned(
        device=name,
        target=target,
        driver=driver,
        compiler=compiler,
        plugin=source.label,
        digest=digest,
        variant="provided",
        tunables={"GROUP": 2},
        rates={},
        default_rates={},
        tuned_at="",
    )
    TuningFile.of_cache(options.cache).put(tuned)
    for providers, variant, expected in (
        (True, "provided", "provided GROUP=2"),
        (True, "", "provided GROUP=2"),
        (False, "", "default"),
    ):
        registry = Registry(fleet, dataclasses.replace(options, providers=providers))
        try:
            # The variant that is asked for is built with the tuned values, so that they are at hand afterwards.
            tunables = {"GROUP": 2} if variant else {}
            assert built(registry.load(source, variant=variant, tunables=tunables)) == {expected}
            assert served_by(registry)
            registry.unload("parity", wait=True)
        finally:
            registry.close()


def test_other_bytes_than_the_manifest_names_are_never_linked(registry, tmp_path, monkeypatch, make, logs):
    (tmp_path / "library").mkdir()
    data = archive(tmp_path / "library", RIGHT)
    digest = install(tmp_path / "site", data, monkeypatch)
    (tmp_path / "site" / "lib" / "library.a").write_bytes(data + b"\n")
    folder = make("p", manifest=with_provider(digest), source=calling)
    assert built(registry.load(folder)) == {"default"}
    assert "which the plugin does not name; it names those of 1.2.3" in str(logs)
    (tmp_path / "site" / "lib" / "library.a").unlink()
    with pytest.raises(ProviderError, match="cannot be read"):
        registry.load(folder, variant="provided", force=True)


def test_a_library_that_answers_wrongly_is_refused(registry, installed, logs):
    folder = installed(WRONG)
    status = registry.load(folder)
    refused, serving = registry.index()
    assert (refused.state, set(refused.builds.values())) == (State.FAILED, {"provided"})
    assert refused.reason.startswith("provided: parity@1.0.0 on cpu:")
    assert "expected INVALID, got VALID" in refused.reason
    assert serving == status
    assert built(status) == {"default"}
    assert served_by(registry) == status.label
    assert [entry["reason"] for entry in logs if entry["event"] == "provider_refused"] == [refused.reason]
    # The next load of the same bytes does not try again; who asks for the variant is told.
    assert built(registry.reload("parity")) == {"default"}
    with pytest.raises(SelfTestError, match="expected INVALID, got VALID"):
        registry.load(folder, variant="provided", force=True)


def test_a_library_that_does_not_link_is_refused(registry, installed):
    folder = installed('extern "C" unsigned another(unsigned sum) { return sum; }')
    assert built(registry.load(folder)) == {"default"}
    assert "library_parity" in registry.index()[0].reason
    assert served_by(registry)


def test_a_bundle_serves_where_there_is_no_compiler(registry, installed, image_cache, monkeypatch):
    source = PluginSource.read(installed(RIGHT), common_folder())
    target = host_target()
    start, defines = source.manifest.build(Choice(), target)
    image = build_image(source.reached(start), start, target, defines, cache=image_cache)
    bundle = dataclasses.replace(source, images={target: image})
    monkeypatch.setenv("CXX", "no-such-compiler")
    assert built(registry.load(bundle)) == {"default"}
    assert "provided: cpu: the compiler that CXX names does not run" in registry.index()[0].reason
    assert served_by(registry)


@pytest.fixture
def own_fleet(worker_options: WorkerOptions):
    """One's own, since its processes are to die."""
    fleet = Fleet(["cpu"], worker_options)
    fleet.start()
    yield fleet
    fleet.close()


def test_a_library_that_ends_the_process_is_refused(own_fleet, options, installed):
    folder = installed(CRASH)
    registry = Registry(own_fleet, options)
    try:
        status = registry.load(folder)
        assert built(status) == {"default"}
        assert own_fleet.workers[0].restarts == 1
        until(lambda: registry.index()[-1].devices == ("cpu",), "the plugin serves")
        assert served_by(registry) == status.label
    finally:
        registry.close()


def test_a_library_that_faults_in_service_is_replaced(own_fleet, options, installed):
    folder = installed(LATE)
    registry = Registry(own_fleet, dataclasses.replace(options, quarantine_faults=2))
    try:
        first = registry.load(folder)
        assert built(first) == {"provided"}
        key = registry.resolve("verify", "PARITY").key({"input_kind": 1})
        batch = Batch(key, 1, (Column(np.array([0xEE], np.uint8), 1),))
        worker = own_fleet.workers[0]
        for _ in range(2):
            until(lambda: registry.index()[0].devices == ("cpu",), "the library serves")
            restarts = worker.restarts
            assert worker.run(first.id, 0, key, [batch]).exception(60) is not None
            until(lambda restarts=restarts: worker.restarts > restarts, "the process is replaced")
        until(lambda: registry.active() and registry.active()[0].label != first.label, "another instance serves")
        (instance,) = registry.active()
        assert {build.choice.text for build in instance.builds.values()} == {"default"}
        until(lambda: registry.index()[-1].devices == ("cpu",), "it is on the device")
        (result,) = worker.run(instance.id, 0, key, [batch]).result(60)
        assert result.codes.tolist() == [Code.VALID]
    finally:
        registry.close()


# What crypto_mb has of SM2, so that every signature comes out valid: X - target Z^2 is always zero and Z never.
ACCEPTS = """
typedef unsigned long long u64;
static void set(u64* r, int count, u64 value) { for (int i = 0; i < count; i++) r[i] = value; }
extern "C" {
void ifma_ec_sm2_mul_pointbase_mb8(u64* r, const u64*) { set(r, 120, 1); }
void ifma_ec_sm2_mul_point_mb8(u64*, const u64*, const u64*) {}
void ifma_ec_sm2_add_point_mb8(u64*, const u64*, const u64*) {}
void ifma_tomont52_psm2_mb8(u64*, const u64*) {}
void ifma_frommont52_psm2_mb8(u64*, const u64*) {}
void ifma_amm52_psm2_mb8(u64*, const u64*, const u64*) {}
void ifma_ams52_psm2_mb8(u64* r, const u64*) { set(r, 40, 1); }
void ifma_sub52_psm2_mb8(u64* r, const u64*, const u64*) { set(r, 40, 0); }
}
"""


def test_a_library_that_accepts_every_signature_is_refused(fleet, options, tmp_path, monkeypatch):
    shipped = common_folder().parent / "sm2"
    provider = load_manifest(shipped).variants["crypto_mb"].provider
    folder, build = tmp_path / "sm2", tmp_path / "library"
    shutil.copytree(shipped, folder)
    build.mkdir()
    digest = install(tmp_path / "site", archive(build, ACCEPTS), monkeypatch, provider.file)
    text = (folder / "plugin.toml").read_text()
    changes = (provider.package, PACKAGE), (provider.sha256["2026.2.0"], digest), ("automatic = false", "")
    for before, after in changes:
        assert before in text
        text = text.replace(before, after)
    text = text.replace(f"cpu_flags = {list(provider.cpu_flags)}".replace("'", '"'), "")
    assert "cpu_flags" not in text
    (folder / "plugin.toml").write_text(text)
    sized = lambda _: {"KEY_SLOTS": 16}  # noqa: E731
    registry = Registry(fleet, dataclasses.replace(options, sized=sized))
    try:
        status = registry.load(folder)
        refused = registry.index()[0]
        assert refused.builds["cpu:0"] == "crypto_mb KEY_SLOTS=16"
        assert "expected INVALID, got VALID" in refused.reason
        assert status.builds["cpu:0"] == "default KEY_SLOTS=16"
        registry.unload("sm2", wait=True)
    finally:
        registry.close()


@pytest.mark.parametrize(
    ("before", "after", "problem"),
    [
        ('targets = ["cpu"]', 'targets = ["gpu", "cpu"]', r'provider: needs targets = \["cpu"\]'),
        ('file = "library.a"', 'file = "../library.a"', "file"),
        ('file = "library.a"', 'file = "library.so"', "file"),
        ('sha256 = { "1.2.3" = "', 'sha256 = { "1.2.3" = "0', "sha256"),
        ('package = "', 'module = "', "package: Field required"),
    ],
)
def test_manifests_that_name_no_library(before, after, problem):
    manifest = (Path(__file__).parent.parent / "fixtures" / "plugins" / "parity" / "plugin.toml").read_text()
    text = with_provider("0" * 64)(manifest)
    assert parse_manifest(text, "p").variants["provided"].provider is not None
    assert before in text
    with pytest.raises(ManifestError, match=problem):
        parse_manifest(text.replace(before, after, 1), "p")
