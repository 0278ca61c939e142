"""Every plugin builds for every target, and its images have what its manifest names.

Registers and spills of the kernels are printed at the end of the run.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from verifier.drivers import open_driver
from verifier.drivers.build import build_image, host_target, kernel_usage
from verifier.errors import DeviceUnavailableError
from verifier.manifest import Manifest, load_manifest

pytestmark = pytest.mark.timeout(3600)  # a large plugin takes a compiler a minute of its own, on a busy machine many

ROOT = Path(__file__).parents[2]
COMMON = ROOT / "plugins" / "common"
FOLDERS = [
    *(path.parent for path in sorted((ROOT / "plugins").glob("*/plugin.toml"))),
    ROOT / "tests" / "fixtures" / "plugins" / "parity",
]
CUDA_TARGETS = ["sm_80", "sm_90", "sm_100"]


@pytest.fixture(params=FOLDERS, ids=lambda folder: folder.name)
def plugin(request) -> tuple[Manifest, dict[str, bytes]]:
    manifest = load_manifest(request.param)
    files = {
        path.name: path.read_bytes()
        for folder in (COMMON, request.param)
        for path in sorted(folder.iterdir())
        if path.is_file()
    }
    return manifest, files


def stages_of(manifest: Manifest) -> set[str]:
    return {*manifest.state, *(stage for operation in manifest.operations for stage in operation.stages), "publish"}


@pytest.mark.parametrize("target", CUDA_TARGETS)
def test_for_gpus(plugin, target, record_property):
    manifest, files = plugin
    try:
        image = build_image(files, manifest.source, target, manifest.defines)
    except DeviceUnavailableError as error:
        pytest.skip(str(error))
    usage = {kernel.name: kernel for kernel in kernel_usage(image.log)}
    for kernel in usage.values():
        # tests/conftest.py prints them at the end of the run.
        record_property(
            "kernel",
            f"{manifest.label:16} {target:6} {kernel.name:28} registers {kernel.registers:3}  "
            f"stack {kernel.stack:5}  spilled {kernel.spill_stores} / {kernel.spill_loads}  shared {kernel.shared}",
        )
    assert stages_of(manifest) <= set(usage)
    assert all(0 < kernel.registers <= 255 for kernel in usage.values())
    symbols = set(re.findall(rb"[A-Za-z_]\w*", image.data))
    assert {b"plugin_info", *(f"{name}_count".encode() for name in manifest.state)} <= symbols


def test_for_this_cpu(plugin, monkeypatch):
    monkeypatch.setenv("CXXFLAGS", "-O1")  # what it holds matters here, not how fast it is
    manifest, files = plugin
    try:
        image = build_image(files, manifest.source, host_target(), manifest.defines)
    except DeviceUnavailableError as error:
        pytest.skip(str(error))
    driver = open_driver("cpu", threads=1)
    module = driver.load(image)
    for stage in stages_of(manifest):
        assert module.function(stage).lanes == 1
    for name in manifest.state:
        assert module.constant(f"{name}_count") > 0
    module.close()
    driver.close()
