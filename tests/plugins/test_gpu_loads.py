"""The GPU's ways of reading bytes, run on the CPU: every address modulo 16, every length around a block.

tests/fuzz/sanitized_run.py runs the same under AddressSanitizer, where reading a byte beside an item would end it.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from _build import PLUGINS
from _gpu_shim import run
from _hashes import HASHES
from _probe import expected_key, expected_signature
from _reference import P256

from verifier.v1 import verifier_pb2

KERNELS = {
    "SM3": ("sm3", "sm3_digest"),
    "SHA256": ("sha256", "sha256_digest"),
    "SHA256D": ("sha256", "sha256d_digest"),
    "KECCAK256": ("keccak", "keccak256_digest"),
    "SHA3_256": ("keccak", "sha3_256_digest"),
}


@pytest.mark.parametrize("algorithm", sorted(KERNELS))
def test_digests(algorithm):
    seed = 51
    generator = random.Random(seed)
    plugin, kernel = KERNELS[algorithm]
    messages = [generator.randbytes(length) for length in range(290)] + [generator.randbytes(64) for _ in range(40)]
    for shift in (0, 1, 4, 7):
        generator.shuffle(messages)
        codes, digests = run(PLUGINS / plugin / f"{plugin}.cu", kernel, messages, 32, threads=256, shift=shift)
        assert (codes == 1).all()
        assert [row.tobytes() for row in digests] == [HASHES[algorithm](message) for message in messages], seed


def test_integers():
    generator = random.Random(52)
    source = Path(__file__).with_name("probe_encodings.cu")
    raw = verifier_pb2.SIGNATURE_ENCODING_RAW_RS
    sec1 = verifier_pb2.KEY_ENCODING_SEC1_UNCOMPRESSED
    for shift in range(16):
        values = [generator.randbytes(64) for _ in range(40)]
        codes, outputs = run(source, "signature", values, 65, threads=128, parameters=[raw], shift=shift)
        assert not codes.any()
        for value, row in zip(values, outputs, strict=True):
            r, s, _ = expected_signature("RAW_RS", value)
            assert row.tobytes()[:64] == value == r.to_bytes(32, "big") + s.to_bytes(32, "big")
        keys = [b"\x04" + value for value in values]
        codes, outputs = run(source, "key", keys, 65, threads=128, parameters=[0, sec1, 2], shift=shift)
        assert not codes.any()
        for key, row in zip(keys, outputs, strict=True):
            assert row.tobytes()[:64] == key[1:]
            assert row[64] == expected_key(P256, "SEC1_UNCOMPRESSED", key)[2]
