"""The steps from a plugin's bytes to a tested instance on every device."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor

from verifier.drivers import ABI_VERSION, DeviceInfo
from verifier.errors import ManifestError, PluginError
from verifier.manifest import Choice, Operation
from verifier.registry._answers import parse_answers
from verifier.registry._elf import image_info
from verifier.registry._fleet import WorkerLike
from verifier.registry._images import Build, images_for, is_ptx
from verifier.registry._instance import Instance
from verifier.registry._options import RegistryOptions
from verifier.registry._parameters import allowed_numbers
from verifier.registry._selftest import self_test
from verifier.registry._source import PluginSource
from verifier.registry._trust import Trust
from verifier.registry._tuning import tuned_choice

__all__ = ["Loader"]


class Loader:
    """Does the work of a load; knows nothing of which instance serves."""

    def __init__(self, options: RegistryOptions) -> None:
        self.options = options
        self._trust = Trust(options)

    def verify(self, instance: Instance, source: PluginSource, siblings: Iterable[Instance]) -> None:
        """Trust, ABI, known answers, and the interface against the plugin's other live versions.

        Raises TrustError, ManifestError or PluginError.
        """
        self._trust.check(source)
        manifest = source.manifest
        if manifest.abi != ABI_VERSION:
            raise ManifestError(f"{source.label}: abi: {manifest.abi}, this daemon has {ABI_VERSION}")
        instance.answers = parse_answers(
            manifest, source.files[manifest.vectors], f"{source.origin}:{manifest.vectors}"
        )
        instance.parameters = allowed_numbers(manifest)
        for sibling in siblings:
            if sibling.plugin != instance.plugin:
                continue
            for operation in manifest.operations:
                other = sibling.manifest.operation(operation.name, operation.algorithm)
                if other is not None and _interface(other) != _interface(operation):
                    raise PluginError(
                        f"{source.label}: {operation.id} has other columns or parameters than {sibling.label}; "
                        "batches that wait for one must fit the other: give the plugin another name"
                    )

    def build(self, instance: Instance, source: PluginSource, workers: Sequence[WorkerLike]) -> None:
        """An image for every device. Raises PluginError (another ABI), ManifestError (no such variant or tunable),
        BuildError, DeviceUnavailableError."""
        options = self.options
        instance.builds = {
            worker.device.id: Build.of(
                source.manifest, worker.device.target, self.chosen(instance.choice, source, worker.device)
            )
            for worker in workers
        }
        builds = set(instance.builds.values())
        instance.images = images_for(source, builds, cache=options.cache, timeout_s=options.build_timeout_s)
        instance.infos = {
            build: image_info(image.data, f"{source.label} for {image.target}")
            for build, image in instance.images.items()
            if not is_ptx(image)
        }

    def chosen(self, asked: Choice | None, source: PluginSource, device: DeviceInfo) -> Choice:
        """What a plugin is built with for a device: what the load asked for, else what the settings say, and where
        both are silent what tuning found there. Raises ManifestError."""
        options = self.options
        if asked is not None:
            variant, tunables = asked.variant, dict(asked.tunables)
        else:
            variant, stated_tunables = options.choices.get(source.name, ("", {}))
            tunables = dict(stated_tunables)
        stated = source.manifest.choice(variant, {**options.sized(source.manifest), **tunables})
        if variant or not options.tuned:
            return stated
        return tuned_choice(device, source, options.cache, dict(stated.tunables)) or stated

    def check_budget(self, instance: Instance, workers: Sequence[WorkerLike], others: Sequence[Instance]) -> None:
        """Whether the plugin's state fits beside what is loaded. Raises PluginError naming device and sizes."""
        for worker in workers:
            device = worker.device
            used = sum(_state_bytes(other, worker) for other in others if other.id in worker.instances)
            budget = int(device.memory_bytes * self.options.memory_share) - used
            need = _state_bytes(instance, worker)
            if need > budget:
                raise PluginError(
                    f"{instance.label} needs {need} bytes of state on {device.id}, {max(0, budget)} are left of "
                    f"{self.options.memory_share:.0%} of its {device.memory_bytes}"
                )

    def place(self, instance: Instance, workers: Sequence[WorkerLike]) -> None:
        """Loads the instance on all workers at once. Raises PluginError, BackendError."""
        _on_all(
            workers,
            lambda worker: worker.load(
                instance.id, instance.manifest, instance.images[instance.builds[worker.device.id]]
            ),
        )

    def test(self, instance: Instance, workers: Sequence[WorkerLike], *, brief: bool = False) -> None:
        """Known answers on all workers at once; `brief` as after a restart. Raises SelfTestError, BackendError."""
        options = self.options
        _on_all(
            workers,
            lambda worker: self_test(
                worker,
                instance.id,
                instance.manifest,
                instance.answers,
                chunk_items=0 if brief else options.chunk_items(worker.device),
                timeout_s=options.selftest_timeout_s,
            ),
        )


def _state_bytes(instance: Instance, worker: WorkerLike) -> int:
    build = instance.builds.get(worker.device.id)
    info = None if build is None else instance.infos.get(build)
    return 0 if info is None else info.state_bytes


def _interface(operation: Operation) -> tuple[object, ...]:
    """What a queued batch depends on: the order of columns and parameters."""
    return operation.inputs, operation.outputs, operation.constant, tuple(operation.parameters)


def _on_all(workers: Sequence[WorkerLike], work: Callable[[WorkerLike], None]) -> None:
    """Runs `work` for every worker at once, waits for all, and raises the first error."""
    with ThreadPoolExecutor(max(1, len(workers))) as pool:
        futures = [pool.submit(work, worker) for worker in workers]
    for future in futures:
        future.result()
