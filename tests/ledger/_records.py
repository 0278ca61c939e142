"""Blocks made for tests: signatures with known verdicts, in the shapes that chains use."""

from __future__ import annotations

import numpy as np

from node_adapter.client import Algorithm, Hash, InputKind, KeyEncoding, Scheme, SignatureEncoding
from node_adapter.formats import Record, Signed, Unverifiable
from verifier.bench.signatures import SignatureSet, make_signatures
from verifier.model import Code

SM2 = Scheme(Algorithm.SM2, InputKind.DIGEST, SignatureEncoding.RAW_RS, KeyEncoding.RAW_XY)
SECP256K1 = Scheme(Algorithm.ECDSA_SECP256K1, InputKind.DIGEST, SignatureEncoding.RAW_RS, KeyEncoding.RAW_XY)
RECOVER = Scheme(Algorithm.ECDSA_SECP256K1, InputKind.DIGEST, SignatureEncoding.RAW_RSV, hash=Hash.KECCAK256)


def signed_blocks(items: SignatureSet, scheme: Scheme, per_block: int) -> list[Record]:
    """The set as blocks of `per_block` transactions."""
    blocks = []
    for start in range(0, items.items, per_block):
        places = range(start, min(start + per_block, items.items))
        name = f"block {start // per_block}"
        signed = tuple(
            Signed(
                f"{name} transaction {place - start}",
                scheme,
                items.digests[place].tobytes(),
                items.signatures[place].tobytes(),
                items.keys[place].tobytes(),
            )
            for place in places
        )
        blocks.append(Record(name, len(signed), signed))
    return blocks


def sm2_blocks(items: int, per_block: int = 100, *, seed: int = 1) -> tuple[list[Record], SignatureSet]:
    """Blocks of SM2 signatures, a twentieth of them spoilt, and the set with the verdict of each."""
    made = make_signatures("SM2", items, seed=seed, keys=32, fault_share=0.05)
    return signed_blocks(made, SM2, per_block), made


def expected(made: SignatureSet) -> dict[str, int]:
    """Signatures by verdict."""
    codes, counts = np.unique(made.codes, return_counts=True)
    return {Code(int(code)).name: int(count) for code, count in zip(codes, counts, strict=True)}


def unverifiable_block() -> Record:
    """A block whose only signature cannot be verified."""
    return Record("block x", 1, (), (Unverifiable("block x transaction 0", "of a type that is not <known>"),))
