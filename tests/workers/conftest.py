"""Workers on the toy plugin: `device_id` is the CPU, a fake, and a GPU where there is one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from _bench import Bench

from verifier.drivers import Image, list_devices
from verifier.drivers.build import ImageCache, build_image, host_target
from verifier.manifest import Manifest, load_manifest
from verifier.workers import Worker, WorkerOptions

ROOT = Path(__file__).parents[2]
PLUGINS = ROOT / "tests" / "fixtures" / "plugins"
PARITY, FAULTY, MASK = PLUGINS / "parity", PLUGINS / "faulty", PLUGINS / "mask"


@pytest.fixture(autouse=True)
def _two_fakes(monkeypatch):
    monkeypatch.setenv("VERIFIER_FAKE_DEVICES", "2")


@pytest.fixture(params=["cpu", "fake:0", pytest.param("cuda:0", marks=pytest.mark.gpu)])
def device_id(request) -> str:
    if request.param not in {device.id for device in list_devices()}:
        pytest.skip(f"there is no {request.param}")
    return request.param


@pytest.fixture(scope="session")
def manifest() -> Manifest:
    return load_manifest(PARITY)


@pytest.fixture(scope="session")
def build(manifest, tmp_path_factory) -> Callable[[str], Image]:
    """Builds the toy for a target."""
    cache = ImageCache(tmp_path_factory.mktemp("images"))
    return lambda target: build_plugin(PARITY, target, cache)


@pytest.fixture(scope="session")
def mask(tmp_path_factory) -> Callable[[str], tuple[Manifest, Image]]:
    """Builds the plugin that moves as much out as in for a target."""
    cache = ImageCache(tmp_path_factory.mktemp("mask"))
    return lambda target: (load_manifest(MASK), build_plugin(MASK, target, cache))


@pytest.fixture(scope="session")
def faulty(tmp_path_factory) -> Callable[[str], tuple[Manifest, Image]]:
    """Builds the plugin that crashes and hangs for a target."""
    cache = ImageCache(tmp_path_factory.mktemp("faulty"))
    return lambda target: (load_manifest(FAULTY), build_plugin(FAULTY, target, cache))


def build_plugin(folder: Path, target: str, cache: ImageCache) -> Image:
    manifest = load_manifest(folder)
    files = {
        path.name: path.read_bytes()
        for place in (ROOT / "plugins" / "common", folder)
        for path in place.iterdir()
        if path.suffix in (".cu", ".cuh")
    }
    return build_image(files, manifest.source, target, manifest.defines, cache=cache)


@pytest.fixture
def image(build) -> Image:
    return build(host_target())


@pytest.fixture
def make_bench() -> Iterator[Callable[..., Bench]]:
    """Makes pipelines that are closed, and their drivers with them, when the test ends."""
    opened = []

    def make(driver, manifest, image, **options) -> Bench:
        made = Bench(driver, manifest, image, **options)
        opened.append(made)
        return made

    yield make
    for made in opened:
        made.close()
        made.driver.close()


@pytest.fixture
def make_worker():
    """Makes workers that are closed when the test ends."""
    workers = []

    def make(device_id: str, **options) -> Worker:
        worker = Worker(device_id, WorkerOptions(**{"slot_bytes": 1 << 20, "stop_timeout_s": 20.0, **options}))
        workers.append(worker)
        return worker

    yield make
    for worker in workers:
        worker.close()


@pytest.fixture
def worker(device_id, make_worker, manifest, build) -> Worker:
    """A worker that is UP and has the toy as instance 1, with chunks as small as they get."""
    made = make_worker(device_id, chunk_rounds=1, chunk_least_bytes=0, unified_chunk_items=64)
    made.start()
    made.load(1, manifest, build(made.device.target))
    return made
