"""Digests and recovery through the pipeline of a worker, on the CPU and on a GPU where there is one."""

from __future__ import annotations

import random

import coincurve
import numpy as np
import pytest
from _build import PLUGINS
from _ecdsa_cases import be32, edges
from _hashes import HASHES
from _reference import P256, SECP256K1, recover

from verifier.bench.rig import Rig
from verifier.drivers import list_devices
from verifier.model import Code, Column

PLUGIN_OF = {"SM3": "sm3", "SHA256": "sha256", "SHA256D": "sha256", "KECCAK256": "keccak", "SHA3_256": "keccak"}


@pytest.fixture(params=["cpu", pytest.param("cuda:0", marks=pytest.mark.gpu)])
def device(request: pytest.FixtureRequest) -> str:
    return present(request.param)


@pytest.fixture
def gpu() -> str:
    return present("cuda:0")


def present(device: str) -> str:
    if device not in [info.id for info in list_devices()]:
        pytest.skip(f"no {device} here")
    return device


def variable(values: list[bytes]) -> Column:
    ends = np.cumsum([0, *(len(value) for value in values)]).astype("<u4")
    return Column.variable("input", b"".join(values), ends, len(values))


@pytest.mark.parametrize("algorithm", sorted(PLUGIN_OF))
def test_digests(device, algorithm):
    """Every length up to 300 in random order, so that items begin at every address; and fixed widths."""
    seed = 31
    generator = random.Random(seed)
    messages = [generator.randbytes(length) for length in range(301)] * 11 + [generator.randbytes(20_000)]
    generator.shuffle(messages)
    with Rig(device, PLUGINS / PLUGIN_OF[algorithm], PLUGINS / "common") as rig:
        slot = rig.fill("digest", algorithm, {"input": variable(messages)}, len(messages))
        rig.run(slot)
        assert (slot.codes == Code.VALID).all()
        expected = [HASHES[algorithm](message) for message in messages]
        assert [row.tobytes() for row in slot.output(0)] == expected, f"seed {seed}"
        for width in (1, 32, 33, 136, 256):
            data = generator.randbytes(width * 1000)
            slot = rig.fill("digest", algorithm, {"input": Column.fixed("input", data, width, 1000)}, 1000)
            rig.run(slot)
            expected = [HASHES[algorithm](data[i : i + width]) for i in range(0, len(data), width)]
            assert [row.tobytes() for row in slot.output(0)] == expected, (seed, width)


@pytest.mark.gpu
def test_recovery_on_a_gpu(gpu):
    """Signatures of libsecp256k1, and the edges of both curves beside them."""
    seed = 32
    generator = random.Random(seed)
    with Rig(gpu, PLUGINS / "ecdsa", PLUGINS / "common") as rig:
        digests, signatures, keys = [], [], []
        for _ in range(3000):
            private = coincurve.PrivateKey(be32(generator.randrange(1, SECP256K1.n)))
            digests.append(generator.randbytes(32))
            signatures.append(private.sign_recoverable(digests[-1], hasher=None))
            keys.append(private.public_key.format(compressed=False)[1:])
        slot = fill(rig, SECP256K1.name, digests, signatures)
        rig.run(slot)
        assert (slot.codes == Code.VALID).all(), f"seed {seed}"
        assert [row.tobytes() for row in slot.output(0)] == keys
        assert [row.tobytes() for row in slot.output(1)] == [HASHES["KECCAK256"](key)[12:] for key in keys]
        for curve in (P256, SECP256K1):
            items = [(item.digest, item.signature + bytes([v])) for item in edges(curve) for v in range(4)]
            slot = fill(rig, curve.name, [item[0] for item in items], [item[1] for item in items])
            rig.run(slot)
            for i, (digest, signature) in enumerate(items):
                code, key = recover(curve, digest, signature)
                assert Code(int(slot.codes[i])) is code, (curve.name, i)
                assert slot.output(0)[i].tobytes() == (be32(key[0]) + be32(key[1]) if key else bytes(64))


def fill(rig: Rig, algorithm: str, digests: list[bytes], signatures: list[bytes]):
    columns = {
        "input": Column.fixed("input", b"".join(digests), 32, len(digests)),
        "signature": Column.fixed("signature", b"".join(signatures), 65, len(signatures)),
    }
    return rig.fill("recover", algorithm, columns, len(digests), {"address_hash": "KECCAK256"})
