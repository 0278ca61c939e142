"""Every plugin builds for every target, and its images have what its manifest names.

Registers and spills of the kernels are printed at the end of the run.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from _build import daemons_build

from verifier.drivers import open_driver
from verifier.drivers.build import build_image, host_target, kernel_usage
from verifier.errors import DeviceUnavailableError
from verifier.manifest import Choice, Manifest
from verifier.registry import PluginSource

pytestmark = pytest.mark.timeout(3600)  # a large plugin takes a compiler a minute of its own, on a busy machine many

ROOT = Path(__file__).parents[2]
COMMON = ROOT / "plugins" / "common"
FOLDERS = [
    *(path.parent for path in sorted((ROOT / "plugins").glob("*/plugin.toml"))),
    ROOT / "tests" / "fixtures" / "plugins" / "parity",
]
# One source for every architecture, of which a build takes NVRTC half a minute to two.
LARGE = ("ecdsa", "kuznyechik", "skinny", "sm2")
CUDA_TARGETS = ["sm_80", "sm_90", "sm_100"]


def source_of(folder: Path) -> PluginSource:
    return PluginSource.read(folder, COMMON)


def stages_of(manifest: Manifest) -> set[str]:
    return {*manifest.state, *(stage for operation in manifest.operations for stage in operation.stages), "publish"}


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_for_this_cpu(folder):
    """First, so that other processes of the run find these builds, which most of them need."""
    source, target = source_of(folder), host_target()
    manifest = source.manifest
    start, defines = manifest.build(Choice(), target)
    try:
        with daemons_build(manifest.name, Choice(), {}):
            image = build_image(source.reached(start), start, target, defines)
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


@pytest.mark.parametrize(
    ("folder", "target"),
    [
        pytest.param(
            folder,
            target,
            id=f"{folder.name}-{target}",
            marks=[pytest.mark.long] if folder.name in LARGE and target != "sm_90" else [],
        )
        for folder in FOLDERS
        for target in CUDA_TARGETS
    ],
)
def test_for_gpus(folder, target, record_property):
    source = source_of(folder)
    manifest = source.manifest
    try:
        image = build_image(source.reached(manifest.source), manifest.source, target, manifest.defines)
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
