"""The block ciphers of the contract: sizes and modes. Beside the manifests, which say how they are computed."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["CIPHERS", "GCM_NONCE_BYTES", "GCM_TAG_BYTES", "MODES", "STRIPE_BLOCKS", "Cipher"]

STRIPE_BLOCKS = 32  # of an item of the bulk operations
GCM_NONCE_BYTES = 12
GCM_TAG_BYTES = 16

MODES = ("ECB", "CTR", "CBC", "GCM")


@dataclass(frozen=True, slots=True)
class Cipher:
    """A block cipher. `name` is the contract's and the manifests' name of the algorithm."""

    name: str
    plugin: str
    block_bytes: int
    key_bytes: tuple[int, ...]

    @property
    def modes(self) -> tuple[str, ...]:
        """GCM needs blocks of 16 bytes; SKINNY's plugin leaves it out."""
        return MODES if self.plugin in ("aes", "sm4", "aria", "kuznyechik") else MODES[:3]

    @property
    def stripe_bytes(self) -> int:
        """Bytes of an item of the bulk operations."""
        return STRIPE_BLOCKS * self.block_bytes

    def iv_bytes(self, mode: str, *, gost: bool = False) -> int:
        """Bytes of an initial vector: none in ECB, a nonce in GCM, half a counter block in GOST R 34.13."""
        if mode == "ECB":
            return 0
        if mode == "GCM":
            return GCM_NONCE_BYTES
        return self.block_bytes // 2 if gost else self.block_bytes


CIPHERS = {
    cipher.name: cipher
    for cipher in (
        Cipher("AES", "aes", 16, (16, 24, 32)),
        Cipher("SM4", "sm4", 16, (16,)),
        Cipher("ARIA", "aria", 16, (16, 24, 32)),
        Cipher("KUZNYECHIK", "kuznyechik", 16, (32,)),
        Cipher("HIGHT", "hight", 8, (16,)),
        Cipher("SKINNY_64", "skinny", 8, (8, 16, 24)),
        Cipher("SKINNY_128", "skinny", 16, (16, 32, 48)),
    )
}
