"""Every build of the ciphers on a GPU: known answers, and long counter mode beside the CPU's default build."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from _build import PLUGINS, Bytes

from verifier.bench.cipher_cases import CIPHERS, Cipher, fill_cipher
from verifier.bench.rig import Rig
from verifier.drivers import list_devices
from verifier.manifest import load_manifest
from verifier.registry._answers import parse_answers

NAMES = ("aes", "aria", "hight", "kuznyechik", "skinny", "sm4")
BUILDS = [
    *((name, "", {}) for name in NAMES),
    *(
        (name, variant, {})
        for name in NAMES
        for variant, described in sorted(load_manifest(PLUGINS / name).variants.items())
        if "gpu" in described.targets
    ),
    *((name, "", {"UNIFORM_MASKS": 1}) for name in ("hight", "skinny")),
    *((name, "", {"MULTIPLIED": level}) for name in ("hight", "kuznyechik", "skinny") for level in (0, 1)),
    *(("kuznyechik", "", {"BYTES_A_PASS": size}) for size in (2, 4, 16)),
    *(("kuznyechik", "tables_global", {"DIRECT_THREADS": threads}) for threads in (32, 1024)),
]
STRIPES = 5003  # neither whole groups nor whole rounds


def rig_of(device: str, name: str, variant: str, tunables: dict[str, int]) -> Rig:
    manifest = load_manifest(PLUGINS / name)
    _, defines = manifest.build(manifest.choice(variant, tunables), "sm_90" if device != "cpu" else "x86-64-v2")
    return Rig(device, PLUGINS / name, PLUGINS / "common", slot_bytes=64 << 20, defines=defines)


def check_known_answers(rig: Rig, folder: Path) -> int:
    compared = 0
    for group in parse_answers(rig.manifest, (folder / rig.manifest.vectors).read_bytes(), folder.name):
        operation = rig.manifest.operations[group.operation_index]
        parameters = dict(zip(operation.parameters, group.key.parameters, strict=True))
        for items in (1, 31, 33, 1000):
            batch, cases = group.tiled(items)
            columns = dict(zip(operation.inputs, batch.inputs, strict=True))
            slot = rig.fill(operation.name, operation.algorithm, columns, items, parameters, group.key.constant)
            rig.run(slot)
            assert (slot.codes == group.codes[cases]).all(), (operation.id, group.ids, items)
            for index, (expected, stated) in enumerate(group.outputs):
                same = (slot.output(index) == expected[cases]).all(axis=1)
                assert (same | ~stated[cases]).all(), (operation.id, group.ids, items)
            compared += items
    return compared


def encrypted(rig: Rig, cipher: Cipher, first: bytes) -> Bytes:
    data = np.random.default_rng(8).integers(0, 256, (STRIPES, cipher.stripe_bytes), np.uint8)
    slot = fill_cipher(cipher, rig, cipher.operation, data, bytes(range(cipher.key_bytes)), first)
    rig.run(slot)
    assert (slot.codes == 1).all()
    return slot.output(0).copy()


@pytest.mark.gpu
@pytest.mark.parametrize(("name", "variant", "tunables"), BUILDS)
def test_every_build(name, variant, tunables):
    if not any(device.id == "cuda:0" for device in list_devices()):
        pytest.skip("no NVIDIA GPU here")
    with rig_of("cuda:0", name, variant, tunables) as gpu, rig_of("cpu", name, "", {}) as cpu:
        assert check_known_answers(gpu, PLUGINS / name) > 40
        for cipher in CIPHERS:
            if cipher.plugin == name:
                # The low word wraps within a stripe.
                first = bytes(cipher.block_bytes - 4) + (0xFFFF_0007).to_bytes(4, "big")
                assert np.array_equal(encrypted(gpu, cipher, first), encrypted(cpu, cipher, first)), cipher.name


def test_the_comparison_notices_another_counter():
    cipher = next(cipher for cipher in CIPHERS if cipher.name == "cipher-hight-ctr")
    with rig_of("cpu", "hight", "", {}) as rig:
        assert check_known_answers(rig, PLUGINS / "hight") > 40
        assert not np.array_equal(encrypted(rig, cipher, bytes(8)), encrypted(rig, cipher, bytes(7) + b"\1"))
