"""Where a simulated node's verdicts come from: a real verifier, asked once about the same bytes."""

from __future__ import annotations

import hashlib
from collections.abc import Callable

import numpy as np

from node_adapter.chain._questions import Codes, Question
from node_adapter.client import VerifierClient
from verifier.model import Code

__all__ = ["RememberedVerdicts", "Verify", "by_middleware"]

Verify = Callable[[Question], Codes]


def by_middleware(client: VerifierClient) -> Verify:
    """Verdicts of a daemon. Undecided items stay undecided; a refusal raises."""

    def verify(question: Question) -> Codes:
        return client.verify(
            question.scheme,
            question.inputs,
            question.signatures,
            question.keys,
            priority=question.priority,
            allow_undecided=True,
        ).codes

    return verify


class RememberedVerdicts:
    """Verdicts of a real verifier, kept under a hash of everything that they depend on.

    Thousands of simulated runs ask about the same transactions; a verdict follows from the bytes alone, so asking
    the verifier once says as much as asking it every time. What it has not seen it is asked about, in one batch.
    """

    def __init__(self, verify: Verify) -> None:
        self._verify = verify
        self._known: dict[bytes, int] = {}
        self.asked = 0  # signatures that the verifier itself decided

    def __call__(self, question: Question) -> Codes:
        """One code an item."""
        names = [
            _name(question, *item) for item in zip(question.inputs, question.signatures, question.keys, strict=True)
        ]
        missing = np.array([at for at, name in enumerate(names) if name not in self._known], np.intp)
        if missing.size:
            self.asked += missing.size
            codes = self._verify(question.only(missing)).tolist()
            # What is undecided is not remembered: it says nothing about the bytes.
            self._known |= {
                names[at]: code for at, code in zip(missing, codes, strict=True) if code != Code.UNDECIDED
            }
        return np.array([self._known.get(name, Code.UNDECIDED) for name in names], np.uint8)


def _name(question: Question, *item: bytes) -> bytes:
    digest = hashlib.sha256(repr(question.scheme).encode())
    for part in item:
        digest.update(len(part).to_bytes(4, "big") + part)
    return digest.digest()
