"""CPU and GPU agree bit for bit with each other and with what the items were made to be."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from verifier.bench.rig import Rig
from verifier.drivers import list_devices
from verifier.model import Code

sys.path.insert(0, str(Path(__file__).parent))
from _items import encoded, raw, sm2_messages

ROOT = Path(__file__).resolve().parents[2]
PLUGIN_OF = {"SM2": "sm2", "ECDSA_P256": "ecdsa", "ECDSA_SECP256K1": "ecdsa"}
MAKERS = {
    "SM2 raw": ("SM2", lambda items, seed: raw("SM2", items, seed)),
    "SM2 encoded": ("SM2", lambda items, seed: encoded("SM2", items, seed)),
    "SM2 messages": ("SM2", sm2_messages),
    "P-256 raw": ("ECDSA_P256", lambda items, seed: raw("ECDSA_P256", items, seed)),
    "P-256 encoded": ("ECDSA_P256", lambda items, seed: encoded("ECDSA_P256", items, seed)),
    "secp256k1 raw": ("ECDSA_SECP256K1", lambda items, seed: raw("ECDSA_SECP256K1", items, seed)),
    "secp256k1 encoded": ("ECDSA_SECP256K1", lambda items, seed: encoded("ECDSA_SECP256K1", items, seed)),
}


def run(device: str, algorithm: str, made, items: int):
    with Rig(device, ROOT / "plugins" / PLUGIN_OF[algorithm], ROOT / "plugins" / "common", slot_bytes=1 << 30) as rig:
        slot = rig.fill("verify", algorithm, made.columns, items, made.parameters, made.constant)
        rig.run(slot)
        return slot.codes.copy(), slot.valid.copy(), slot.decided.copy()


def explain(codes: np.ndarray, expected: np.ndarray, seed: int) -> str:
    wrong = np.flatnonzero(codes != expected)
    if not wrong.size:
        return ""
    some = ", ".join(f"item {i}: {Code(int(codes[i])).name} for {Code(int(expected[i])).name}" for i in wrong[:5])
    return f"seed {seed}: {wrong.size} of {codes.size} differ: {some}"


@pytest.mark.parametrize("name", MAKERS)
def test_cpu(name):
    seed, items = 20, 3000
    algorithm, make = MAKERS[name]
    made = make(items, seed)
    codes, valid, decided = run("cpu", algorithm, made, items)
    assert not explain(codes, made.codes, seed)
    assert np.array_equal(np.unpackbits(valid, bitorder="little")[:items], made.codes == Code.VALID)
    assert np.unpackbits(decided, bitorder="little")[:items].all()


@pytest.mark.long
@pytest.mark.parametrize("name", MAKERS)
def test_cpu_long(name):
    seed, items = 21, 200_000
    algorithm, make = MAKERS[name]
    made = make(items, seed)
    codes, _, _ = run("cpu", algorithm, made, items)
    assert not explain(codes, made.codes, seed)


@pytest.mark.gpu
@pytest.mark.parametrize("name", MAKERS)
def test_gpu_and_cpu_agree_on_a_million(name):
    gpu = next((info.id for info in list_devices() if info.kind == "cuda"), None)
    if gpu is None:
        pytest.skip("no NVIDIA GPU here")
    seed, items = 22, 1_000_000
    algorithm, make = MAKERS[name]
    made = make(items, seed)
    on_gpu = run(gpu, algorithm, made, items)
    on_cpu = run("cpu", algorithm, made, items)
    assert not explain(on_gpu[0], made.codes, seed)
    assert not explain(on_gpu[0], on_cpu[0], seed)
    assert np.array_equal(on_gpu[1], on_cpu[1])
    assert np.array_equal(on_gpu[2], on_cpu[2])
