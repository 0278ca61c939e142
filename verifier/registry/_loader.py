"""The steps from a plugin's bytes to a tested instance on every device."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor

from verifier.drivers import ABI_VERSION
from verifier.errors import ManifestError, PluginError
from verifier.manifest import Operation
from verifier.registry._answers import parse_answers
from verifier.registry._fleet import WorkerLike
from verifier.registry._images import images_for
from verifier.registry._instance import Instance
from verifier.registry._options import RegistryOptions
from verifier.registry._parameters import allowed_numbers
from verifier.registry._selftest import self_test
from verifier.registry._source import PluginSource

__all__ = ["Loader"]


class Loader:
    """Does the work of a load; knows nothing of which instance serves."""

    def __init__(self, options: RegistryOptions) -> None:
        self._options = options

    def verify(self, instance: Instance, source: PluginSource, siblings: Iterable[Instance]) -> None:
        """ABI, known answers, and the interface against the plugin's other live versions.

        Raises ManifestError or PluginError.
        """
        manifest = source.manifest
        if manifest.abi != ABI_VERSION:
            raise ManifestError(f"{source.label}: abi: {manifest.abi}, this daemon has {ABI_VERSION}")
        instance.answers = parse_answers(
            manifest, source.files[manifest.vectors], f"{source.origin}:{manifest.vectors}"
        )
        instance.parameters = allowed_numbers(manifest)
        for sibling in siblings:
            for operation in manifest.operations:
                other = sibling.manifest.operation(operation.name, operation.algorithm)
                if other is not None and _interface(other) != _interface(operation):
                    raise PluginError(
                        f"{source.label}: {operation.id} has other columns or parameters than {sibling.label}; "
                        "batches that wait for one must fit the other: give the plugin another name"
                    )

    def build(self, instance: Instance, source: PluginSource, workers: Sequence[WorkerLike]) -> None:
        """An image for every worker's target. Raises BuildError, DeviceUnavailableError."""
        targets = {worker.device.target for worker in workers}
        options = self._options
        instance.images = images_for(source, targets, cache=options.cache, timeout_s=options.build_timeout_s)

    def place(self, instance: Instance, workers: Sequence[WorkerLike]) -> None:
        """Loads the instance on all workers at once. Raises PluginError, BackendError."""
        _on_all(workers, lambda worker: self.place_on(instance, worker))

    def place_on(self, instance: Instance, worker: WorkerLike) -> None:
        """Loads the instance on one worker. Raises PluginError, BackendError."""
        worker.load(instance.id, instance.manifest, instance.images[worker.device.target])

    def test(self, instance: Instance, workers: Sequence[WorkerLike], *, full: bool) -> None:
        """Known answers on all workers at once; `full` adds a full chunk. Raises SelfTestError, BackendError."""
        _on_all(
            workers,
            lambda worker: self_test(
                worker,
                instance.id,
                instance.manifest,
                instance.answers,
                chunk_items=self._options.chunk_items(worker.device.kind) if full else 0,
                timeout_s=self._options.selftest_timeout_s,
            ),
        )


def _interface(operation: Operation) -> tuple[object, ...]:
    """What a queued batch depends on: the order of columns and parameters."""
    return operation.inputs, operation.outputs, operation.constant, tuple(operation.parameters)


def _on_all(workers: Sequence[WorkerLike], work: Callable[[WorkerLike], None]) -> None:
    """Runs `work` for every worker at once, waits for all, and raises the first error."""
    with ThreadPoolExecutor(max(1, len(workers))) as pool:
        futures = [pool.submit(work, worker) for worker in workers]
    for future in futures:
        future.result()
