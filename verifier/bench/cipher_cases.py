"""Block ciphers: 512-byte stripes under one key, on the device and from page-locked memory.

    cipher-ALGORITHM-MODE-device     the data on the device already, really read and written
    cipher-ALGORITHM-MODE-host       from and to page-locked host memory
    cipher-ALGORITHM-MODE-cpu

Rates are bits of data a second, one way.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from verifier.bench.limits import Limits
from verifier.bench.records import Record
from verifier.bench.rig import Rig, Slot
from verifier.errors import SelfTestError
from verifier.model import Column

__all__ = ["CIPHERS", "Cipher", "fill_cipher", "measure_cipher"]


@dataclass(frozen=True, slots=True)
class Cipher:
    """A cipher with one key length, in one mode."""

    name: str
    plugin: str
    algorithm: str
    operation: str
    key_bytes: int
    block_bytes: int

    @property
    def stripe_bytes(self) -> int:
        """Bytes of an item: 32 blocks."""
        return 32 * self.block_bytes


CIPHERS = (
    Cipher("cipher-skinny-128-256-ecb", "skinny", "SKINNY_128", "ecb_encrypt", 32, 16),
    Cipher("cipher-skinny-128-256-ctr", "skinny", "SKINNY_128", "ctr", 32, 16),
    Cipher("cipher-hight-ecb", "hight", "HIGHT", "ecb_encrypt", 16, 8),
    Cipher("cipher-hight-ctr", "hight", "HIGHT", "ctr", 16, 8),
    Cipher("cipher-aes-128-ctr", "aes", "AES", "ctr", 16, 16),
    Cipher("cipher-aes-128-gcm", "aes", "AES", "gcm_encrypt", 16, 16),
    Cipher("cipher-sm4-ctr", "sm4", "SM4", "ctr", 16, 16),
    Cipher("cipher-sm4-gcm", "sm4", "SM4", "gcm_encrypt", 16, 16),
    Cipher("cipher-aria-128-ctr", "aria", "ARIA", "ctr", 16, 16),
    Cipher("cipher-aria-128-gcm", "aria", "ARIA", "gcm_encrypt", 16, 16),
    Cipher("cipher-kuznyechik-ecb", "kuznyechik", "KUZNYECHIK", "ecb_encrypt", 32, 16),
    Cipher("cipher-kuznyechik-ctr", "kuznyechik", "KUZNYECHIK", "ctr", 32, 16),
    Cipher("cipher-kuznyechik-gcm", "kuznyechik", "KUZNYECHIK", "gcm_encrypt", 32, 16),
)

_INVERSE = {"ecb_encrypt": "ecb_decrypt", "ctr": "ctr", "gcm_encrypt": "gcm_decrypt"}


def fill_cipher(
    cipher: Cipher, rig: Rig, operation: str, data: np.ndarray, key: bytes, first: bytes | None = None
) -> Slot:
    """Stripes, (items, bytes), in the rig's slot. `first` is the first counter, a whole block: zeros by default."""
    items, width = len(data), cipher.block_bytes
    # The counter of a stripe's first block: 32 more than the one before.
    low = int.from_bytes((first or bytes(width))[-4:], "big") + np.arange(items, dtype=np.uint64) * 32
    counters = np.empty((items, width), np.uint8)
    counters[:, :-4] = np.frombuffer(first or bytes(width), np.uint8)[:-4]
    counters[:, -4:] = low.astype(">u4").view(np.uint8).reshape(items, 4)
    columns = {
        "data": Column.fixed("data", data.ravel(), cipher.stripe_bytes, items),
        "counter": Column.fixed("counter", counters.ravel(), width, items),
        "bytes": Column.fixed("bytes", np.full(items, cipher.stripe_bytes, "<u4").view(np.uint8), 4, items),
    }
    return rig.fill(operation, cipher.algorithm, columns, items, constant=key)


def measure_cipher(cipher: Cipher, rig: Rig, limits: Limits, data_bytes: int, runs: int) -> Iterator[Record]:
    """Checks that a round trip gives the data back, then measures."""
    rng = np.random.default_rng(7)
    key = rng.bytes(cipher.key_bytes)
    stripes = max(1, data_bytes // cipher.stripe_bytes)
    sample = rng.integers(0, 256, (min(stripes, 4099), cipher.stripe_bytes), np.uint8)
    there = fill_cipher(cipher, rig, cipher.operation, sample, key)
    rig.run(there)
    hidden = there.output(0).copy()
    back = fill_cipher(cipher, rig, _INVERSE[cipher.operation], hidden, key)
    rig.run(back)
    if np.array_equal(hidden, sample) or not np.array_equal(back.output(0), sample):
        raise SelfTestError(f"{cipher.name}: what was encrypted does not come back")
    data = np.resize(sample, (stripes, cipher.stripe_bytes))
    slot = fill_cipher(cipher, rig, cipher.operation, data, key)
    bits = 8.0 * data.size
    if rig.info.unified:
        yield Record.of_times(
            f"{cipher.name}-cpu",
            rig.info,
            stripes,
            rig.times(slot, runs),
            bits,
            unit="bits/s",
            includes=("key schedule",),
        )
        return
    yield Record.of_times(
        f"{cipher.name}-device",
        rig.info,
        stripes,
        rig.kernel_times(slot, runs),
        bits,
        unit="bits/s",
        includes=("key schedule",),
    )
    yield Record.of_times(
        f"{cipher.name}-host",
        rig.info,
        stripes,
        rig.times(slot, runs),
        bits,
        unit="bits/s",
        includes=("transfer", "key schedule"),
        limit=("copies both ways at once", 8 * limits.copy_both),
    )
