"""The steps from a plugin's bytes to a tested instance on every device."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor

import structlog

from verifier.drivers import ABI_VERSION, DeviceInfo
from verifier.errors import BackendError, DeviceUnavailableError, ManifestError, PluginError, ProviderError
from verifier.manifest import Choice, Operation
from verifier.registry._answers import parse_answers
from verifier.registry._elf import image_info
from verifier.registry._fleet import WorkerLike
from verifier.registry._images import Build, images_for, is_ptx
from verifier.registry._instance import Instance
from verifier.registry._options import RegistryOptions
from verifier.registry._parameters import allowed_numbers
from verifier.registry._providers import offers
from verifier.registry._selftest import self_test
from verifier.registry._source import PluginSource
from verifier.registry._trust import Trust
from verifier.registry._tuning import tuned_choice

__all__ = ["Loader"]

_log = structlog.get_logger(__name__)


class Loader:
    """Does the work of a load; knows nothing of which instance serves."""

    def __init__(self, options: RegistryOptions) -> None:
        self.options = options
        self._trust = Trust(options)
        self._refused: dict[tuple[str, str], str] = {}  # by a plugin's digest and its variant

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
        ProviderError, BuildError, DeviceUnavailableError."""
        options, manifest = self.options, source.manifest
        for worker in workers:
            device = worker.device
            choice = self.chosen(instance.choice, source, device)
            build = Build.of(manifest, device.target, choice)
            instance.builds[device.id] = build
            if manifest.provider(build.choice, build.target) and not self._stated(instance.choice, source)[0]:
                instance.provided[device.id] = build.choice.variant
        own = {build for device, build in instance.builds.items() if device not in instance.provided}
        instance.images = images_for(source, own, cache=options.cache, timeout_s=options.build_timeout_s)
        for device_id, variant in instance.provided.items():
            build = instance.builds[device_id]
            try:
                instance.images |= images_for(source, [build], cache=options.cache, timeout_s=options.build_timeout_s)
            except (PluginError, DeviceUnavailableError) as error:  # a bundle brings its defaults, and no compiler
                raise ProviderError(f"{source.label}: {variant}: {error}") from error
        instance.infos = {
            build: image_info(image.data, f"{source.label} for {image.target}")
            for build, image in instance.images.items()
            if not is_ptx(image)
        }

    def chosen(self, asked: Choice | None, source: PluginSource, device: DeviceInfo) -> Choice:
        """What a plugin is built with for a device: what the load asked for, else what the settings say, and where
        both are silent what tuning found there, else a provider's variant; neither is a provider's where the settings
        want none. Raises ManifestError."""
        options = self.options
        variant, tunables = self._stated(asked, source)
        stated = source.manifest.choice(variant, {**options.sized(source.manifest), **tunables})
        if variant:
            return stated
        tuned = tuned_choice(device, source, options.cache, dict(stated.tunables)) if options.tuned else None
        wanted = tuned is not None and (options.providers or not source.manifest.provider(tuned, device.target))
        if tuned is not None and wanted and (source.digest, tuned.variant) not in self._refused:
            return tuned
        return self._with_provider(source, device, stated)

    def _stated(self, asked: Choice | None, source: PluginSource) -> tuple[str, dict[str, int | str]]:
        """The variant, empty where nobody named one, and the tunables."""
        if asked is not None:
            return asked.variant, dict(asked.tunables)
        variant, tunables = self.options.choices.get(source.name, ("", {}))
        return variant, dict(tunables)

    def _with_provider(self, source: PluginSource, device: DeviceInfo, stated: Choice) -> Choice:
        """The choice with the first automatic provider's variant that can be used and did not fail here before."""
        if not self.options.providers:
            return stated
        for offer in (each for each in offers(source.manifest, device.target) if each.automatic):
            problem = self._refused.get((source.digest, offer.variant)) or offer.problem
            said = {"plugin": source.label, "device": device.id, "variant": offer.variant}
            if offer.library is not None and not problem:
                _log.info("provider", **said, library=offer.library.label)
                return source.manifest.choice(offer.variant, dict(stated.tunables))
            _log.info("provider_not_used", **said, reason=problem)
        return stated

    def refuse(self, instance: Instance, problem: str) -> None:
        """Has later loads of the same bytes do without the providers of an instance."""
        for variant in instance.provided.values():
            self._refused[instance.digest, variant] = problem
        _log.warning(
            "provider_refused", plugin=instance.label, variants=list(instance.provided.values()), reason=problem
        )

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
        """Loads the instance on all workers at once. Raises PluginError, BackendError, and in the place of either
        ProviderError where a provider's variant stands for the default."""
        _on_all(
            instance,
            workers,
            lambda worker: worker.load(
                instance.id, instance.manifest, instance.images[instance.builds[worker.device.id]]
            ),
        )

    def test(self, instance: Instance, workers: Sequence[WorkerLike], *, brief: bool = False) -> None:
        """Known answers on all workers at once; `brief` as after a restart. Raises SelfTestError, BackendError, or
        ProviderError as `place` does."""
        options = self.options
        _on_all(
            instance,
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


def _on_all(instance: Instance, workers: Sequence[WorkerLike], work: Callable[[WorkerLike], None]) -> None:
    """Runs `work` for every worker at once, waits for all, and raises the first error."""

    def guarded(worker: WorkerLike) -> None:
        variant = instance.provided.get(worker.device.id)
        try:
            work(worker)
        except (PluginError, BackendError) as error:
            if variant is None:
                raise
            raise ProviderError(f"{variant}: {error}") from error

    with ThreadPoolExecutor(max(1, len(workers))) as pool:
        futures = [pool.submit(guarded, worker) for worker in workers]
    for future in futures:
        future.result()
