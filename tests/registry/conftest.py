"""Real workers on the CPU, and copies of the toy plugin that differ in one thing."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from verifier.registry import Registry, RegistryOptions
from verifier.workers import Fleet, WorkerOptions

PLUGINS = Path(__file__).parent.parent / "fixtures" / "plugins"
WAIT_S = 60

Make = Callable[..., Path]


@pytest.fixture(scope="session")
def image_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("images")


@pytest.fixture(scope="session")
def worker_options() -> WorkerOptions:
    return WorkerOptions(
        slots=3, slot_bytes=1 << 20, unified_chunk_items=1024, streams=2, batch_limit_s=3, item_limit_s=0
    )


@pytest.fixture(scope="module")
def fleet(worker_options: WorkerOptions) -> Iterator[Fleet]:
    """Two workers that share the CPU: two devices to the registry."""
    fleet = Fleet(["cpu:0", "cpu:1"], worker_options)
    fleet.start()
    yield fleet
    fleet.close()


@pytest.fixture
def options(image_cache: Path) -> RegistryOptions:
    return RegistryOptions(trust="any", cache=image_cache, cpu_chunk_items=1200, drain_timeout_s=20)


@pytest.fixture
def registry(fleet: Fleet, options: RegistryOptions) -> Iterator[Registry]:
    registry = Registry(fleet, options)
    yield registry
    for status in registry.index():
        registry.unload(status.label, wait=True)
    registry.close()


@pytest.fixture
def make(tmp_path: Path) -> Make:
    """make("folder", version="1.1.0", ...) copies a fixture plugin and edits the copy."""

    def make(
        name: str,
        *,
        of: str = "parity",
        version: str | None = None,
        manifest: Callable[[str], str] | None = None,
        answers: Callable[[Any], None] | None = None,
        source: Callable[[str], str] | None = None,
    ) -> Path:
        folder = tmp_path / name
        shutil.copytree(PLUGINS / of, folder)
        text = (folder / "plugin.toml").read_text()
        if version is not None:
            text = re.sub(r'(?m)^version = ".*"', f'version = "{version}"', text)
        (folder / "plugin.toml").write_text(text if manifest is None else manifest(text))
        if answers is not None:
            data = json.loads((folder / "vectors.json").read_text())
            answers(data)
            (folder / "vectors.json").write_text(json.dumps(data))
        if source is not None:
            (path,) = folder.glob("*.cu")
            path.write_text(source(path.read_text()))
        return folder

    return make
