"""Every driver under one suite: `driver` is the CPU, a fake, and a GPU where there is one."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from verifier.drivers import BatchStruct, Buffer, Driver, Image, Module, Stream, open_driver
from verifier.drivers.build import ImageCache, build_image
from verifier.errors import DeviceUnavailableError
from verifier.model import Bytes

ROOT = Path(__file__).parents[2]
PARITY = ROOT / "tests" / "fixtures" / "plugins" / "parity"
COMMON = ROOT / "plugins" / "common"


def read_sources(*folders: Path) -> dict[str, bytes]:
    """Kernel sources and headers by name."""
    return {
        path.name: path.read_bytes()
        for folder in folders
        for path in sorted(folder.iterdir())
        if path.suffix in (".cu", ".cuh", ".h")
    }


@pytest.fixture(scope="session")
def parity_files() -> dict[str, bytes]:
    return read_sources(COMMON, PARITY)


@pytest.fixture(scope="session")
def image_cache(tmp_path_factory) -> ImageCache:
    return ImageCache(tmp_path_factory.mktemp("images"))


@pytest.fixture(params=["cpu", "fake:0", pytest.param("cuda:0", marks=pytest.mark.gpu)])
def driver(request, monkeypatch):
    monkeypatch.setenv("VERIFIER_FAKE_DEVICES", "1")
    try:
        opened = open_driver(request.param)
    except DeviceUnavailableError as error:
        pytest.skip(str(error).splitlines()[0])
    yield opened
    opened.close()


@pytest.fixture
def parity(driver, parity_files, image_cache) -> Image:
    try:
        return build_image(parity_files, "parity.cu", driver.info.target, {}, cache=image_cache)
    except DeviceUnavailableError as error:
        pytest.skip(str(error))


@dataclass
class Outcome:
    codes: Bytes
    valid: Bytes
    decided: Bytes
    digests: Bytes


class Parity:
    """The toy plugin on one device: its memory, and one launch at a time."""

    def __init__(self, driver: Driver, image: Image, capacity: int) -> None:
        self.driver = driver
        self.capacity = -(-capacity // 32) * 32
        self.module: Module = driver.load(image)
        info = self.module.info
        names = ("parity_table", "parity_sum", "parity_decide", "parity_digest", "publish")
        self.stages = {name: self.module.function(name) for name in names}
        lanes = max(stage.lanes for stage in self.stages.values())
        self.buffers: list[Buffer] = []
        self.state = self._allocate(info.state_bytes)
        self.item_scratch = self._allocate(self.capacity * info.scratch_item_bytes)
        self.lane_scratch = self._allocate(lanes * info.scratch_lane_bytes)
        self.codes = self._allocate(self.capacity)
        self.digests = self._allocate(self.capacity * 8)
        self.bitmaps = driver.allocate_managed(self.capacity // 4)
        self.buffers.append(self.bitmaps)
        batch = self._batch(self.module.constant("parity_table_count"))
        stream = driver.stream()
        stream.launch(self.stages["parity_table"], batch)
        stream.synchronize()
        stream.close()

    def _allocate(self, nbytes: int) -> int:
        self.buffers.append(self.driver.allocate(nbytes))
        return self.buffers[-1].address

    def _batch(self, items: int) -> BatchStruct:
        batch = BatchStruct(items=items, capacity=self.capacity, codes=self.codes, state=self.state)
        batch.valid, batch.decided = self.bitmaps.address, self.bitmaps.address + self.capacity // 8
        batch.item_scratch, batch.lane_scratch = self.item_scratch, self.lane_scratch
        batch.outputs[0], batch.output_strides[0] = self.digests, 8
        return batch

    def run(
        self,
        stream: Stream,
        items: int,
        data: Bytes,
        *,
        stride: int = 0,
        offsets: np.ndarray | None = None,
        salt: bytes = b"",
        stages: tuple[str, ...] = ("parity_sum", "parity_decide"),
        kind: int = 1,
    ) -> Outcome:
        """One batch, copied in, run and copied out; waits for it."""
        batch = self._batch(items)
        batch.parameters[0] = kind
        held = []

        def put(array: Bytes) -> int:
            buffer = self.driver.allocate(array.size)
            held.append(buffer)
            stream.copy_in(buffer.address, array)
            return buffer.address

        batch.inputs[0].data = put(data)
        batch.inputs[0].stride = stride
        if offsets is not None:
            batch.inputs[0].offsets = put(offsets.astype("<u4").view(np.uint8))
        if salt:
            batch.constant, batch.constant_bytes = put(np.frombuffer(salt, np.uint8)), len(salt)
        stream.fill(self.codes, 0, self.capacity)
        stream.fill(self.digests, 0, self.capacity * 8)
        stream.fill(self.bitmaps.address, 0, self.bitmaps.nbytes)
        for name in (*stages, "publish"):
            stream.launch(self.stages[name], batch)
        codes, digests = np.full(items, 0xEE, np.uint8), np.full(items * 8, 0xEE, np.uint8)
        stream.copy_out(codes, self.codes)
        stream.copy_out(digests, self.digests)
        stream.record().synchronize()
        bitmaps = self.bitmaps.array
        assert bitmaps is not None
        bits = [
            np.unpackbits(bitmaps[start : start + self.capacity // 8], bitorder="little")
            for start in (0, self.capacity // 8)
        ]
        # Bits past the last item are clear up to the end of its word, and untouched behind it.
        assert not any(half[items:].any() for half in bits)
        for buffer in held:
            buffer.close()
        return Outcome(codes, bits[0][:items], bits[1][:items], digests.reshape(items, 8))

    def close(self) -> None:
        for buffer in self.buffers:
            buffer.close()
        self.module.close()


@pytest.fixture
def open_parity(driver):
    return lambda image, capacity: Parity(driver, image, capacity)


@pytest.fixture
def toy(driver, parity):
    opened = Parity(driver, parity, 5000)
    yield opened
    opened.close()


@pytest.fixture
def stream(driver):
    opened = driver.stream()
    yield opened
    opened.close()


@pytest.fixture(scope="session")
def parity_vectors() -> dict:
    return json.loads((PARITY / "vectors.json").read_text())
