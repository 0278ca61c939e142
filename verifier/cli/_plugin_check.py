"""Builds a plugin for every target, and runs its known answers on the devices here."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from verifier.drivers import Image, list_devices
from verifier.drivers.build import KernelUsage, build_image, compiler_id, host_target, kernel_usage
from verifier.errors import DeviceUnavailableError, VerifierError
from verifier.manifest import Choice
from verifier.registry import PluginSource, Registry, RegistryOptions, build_files
from verifier.workers import Fleet

__all__ = ["Build", "Run", "available_targets", "build_all", "default_pack_targets", "run_all"]

GPU_TARGETS = ("sm_80", "sm_90", "sm_100")
PTX_TARGET = "compute_80"


@dataclass(frozen=True)
class Build:
    """What came of one target. Kernels are a GPU's; `problem` is empty and `image` there where it is built."""

    target: str
    choice: str  # variant and tunables
    seconds: float
    kernels: tuple[KernelUsage, ...]
    problem: str
    image: Image | None

    def report(self) -> dict[str, object]:
        """For JSON."""
        return {
            "target": self.target,
            "choice": self.choice,
            "seconds": round(self.seconds, 3),
            "bytes": 0 if self.image is None else len(self.image.data),
            "kernels": [asdict(kernel) for kernel in self.kernels],
            "problem": self.problem,
        }


@dataclass(frozen=True)
class Run:
    """What came of the known answers on one device; `problem` is empty where all are right."""

    device: str
    choice: str
    answers: int
    problem: str


def available_targets() -> list[str]:
    """This CPU's target, and the GPUs' architectures where NVRTC is installed; none without a compiler."""
    return [target for target in (host_target(), *GPU_TARGETS) if _has_compiler(target)]


def default_pack_targets() -> list[str]:
    """As above, with PTX for architectures to come."""
    return [*available_targets(), *([PTX_TARGET] if _has_compiler(PTX_TARGET) else [])]


def build_all(source: PluginSource, targets: Sequence[str], choice: Choice | None = None) -> list[Build]:
    """Builds each target anew, past the cache."""
    with tempfile.TemporaryDirectory(prefix="verifier-check-") as cache:
        return [_build(source, target, choice or Choice(), Path(cache)) for target in dict.fromkeys(targets)]


def run_all(source: PluginSource, device_ids: Sequence[str] | None, choice: Choice | None = None) -> list[Run]:
    """Loads the plugin into real workers, one device after the other, as a daemon would."""
    devices = list(device_ids or [device.id for device in list_devices()])
    return [_run(source, device, choice or Choice()) for device in devices]


def _has_compiler(target: str) -> bool:
    try:
        compiler_id(target)
    except DeviceUnavailableError:
        return False
    return True


def _build(source: PluginSource, target: str, choice: Choice, cache: Path) -> Build:
    begin = time.perf_counter()
    try:
        start, defines = source.manifest.build(choice, target)
        image = build_image(build_files(source, choice, target), start, target, defines, cache=cache)
    except VerifierError as error:
        return Build(target, choice.text, time.perf_counter() - begin, (), str(error), None)
    seconds = time.perf_counter() - begin
    return Build(target, choice.text, seconds, tuple(kernel_usage(image.log)), "", image)


def _run(source: PluginSource, device: str, choice: Choice) -> Run:
    try:
        fleet = Fleet([device])
        fleet.start()
    except VerifierError as error:
        return Run(device, choice.text, 0, str(error))
    try:
        registry = Registry(fleet, RegistryOptions(trust="any"))
        try:
            registry.load(source, variant=choice.variant, tunables=dict(choice.tunables))
            (instance,) = registry.active()
            return Run(device, choice.text, sum(len(group) for group in instance.answers), "")
        except VerifierError as error:
            return Run(device, choice.text, 0, str(error))
        finally:
            registry.close()
    finally:
        fleet.close()
