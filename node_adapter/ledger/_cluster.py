"""Row groups over a Ray cluster: Ray Data hands them to actors that own a device each.

A node that is lost takes its actors along; Ray starts others and gives them what was not finished. An outcome is
written down by the process that asked, once, whoever made it. Every node must reach the files under the same paths.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from node_adapter.ledger._engine import AT_ONCE, Engine
from node_adapter.ledger._groups import verify_group
from node_adapter.ledger._outcome import Outcome

if TYPE_CHECKING:
    from node_adapter.ledger._verify import Group, Options

__all__ = ["verify_on_cluster"]


class _Actor:
    """A device of the cluster with its plugins."""

    def __init__(self, plugins: Sequence[str], gpu: bool, cpus: int) -> None:
        self._resources = ExitStack()
        # Ray shows an actor only its own GPU, as number 0.
        device, threads = ("cuda:0", None) if gpu else ("cpu", cpus)
        self._engine = self._resources.enter_context(Engine((device,), plugins, threads=threads))
        self._pool = self._resources.enter_context(ThreadPoolExecutor(AT_ONCE, "ledger"))

    def __call__(self, tasks: dict[str, Any]) -> dict[str, Any]:
        outcomes = self._pool.map(
            lambda path, name, digest, row_group: verify_group(
                self._engine, Path(str(path)), str(name), str(digest), int(row_group)
            ),
            *(tasks[name] for name in ("path", "name", "digest", "row_group")),
        )
        return {"outcome": np.array([outcome.as_line() for outcome in outcomes], object)}


def verify_on_cluster(groups: Sequence[Group], plugins: Sequence[str], options: Options) -> Iterator[Outcome]:
    """The outcomes of these row groups, in the order in which they are done. Raises what Ray raises."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    import ray
    import ray.data

    address = None if options.ray == "local" else options.ray
    ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
    logging.getLogger("ray.data").setLevel(logging.ERROR)
    try:
        resources = ray.cluster_resources()
        gpus = int(resources.get("GPU", 0))
        actors = gpus or max(1, int(resources.get("CPU", 1)) // options.cpus)
        context = ray.data.DataContext.get_current()
        context.enable_progress_bars = context.print_on_execution_start = False
        tasks = [
            {"path": str(g.path.resolve()), "name": g.name, "digest": g.digest, "row_group": g.row_group}
            for g in groups
        ]
        blocks = -(-len(tasks) // AT_ONCE)
        dataset = ray.data.from_items(tasks, override_num_blocks=blocks)
        done = dataset.map_batches(
            _Actor,
            fn_constructor_kwargs={"plugins": list(plugins), "gpu": bool(gpus), "cpus": options.cpus},
            batch_size=AT_ONCE,
            compute=ray.data.ActorPoolStrategy(size=min(actors, blocks)),
            num_gpus=1 if gpus else None,
            num_cpus=None if gpus else options.cpus,
        )
        for row in done.iter_rows():
            yield Outcome.from_line(row["outcome"])
    finally:
        ray.shutdown()
