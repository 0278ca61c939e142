"""Digest plugins against their known answers, the shared vectors, and libraries on random bytes."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest
from _answers import BuiltPlugin
from _hashes import HASHES
from _shared import shared_json

from verifier.model import Code

PLUGIN_OF = {"SM3": "sm3", "SHA256": "sha256", "SHA256D": "sha256", "KECCAK256": "keccak", "SHA3_256": "keccak"}


@pytest.fixture(scope="module")
def plugins() -> dict[str, BuiltPlugin]:
    return {name: BuiltPlugin(name) for name in ("sm3", "sha256", "keccak")}


def digests(plugins: dict[str, BuiltPlugin], algorithm: str, messages: Sequence[bytes]) -> list[bytes]:
    result = plugins[PLUGIN_OF[algorithm]].run("digest", algorithm, {"input": messages})
    assert (result.codes == Code.VALID).all()
    return [row.tobytes() for row in result.outputs[0]]


@pytest.mark.parametrize("name", ["sm3", "sha256", "keccak"])
def test_known_answers(plugins, name):
    assert plugins[name].check_known_answers() > 40


@pytest.mark.parametrize(
    ("algorithm", "file"), [("SM3", "sm3.json"), ("SHA256", "sha256.json"), ("KECCAK256", "keccak256.json")]
)
def test_shared_vectors(plugins, algorithm, file):
    cases = shared_json(file)["cases"]
    messages = []
    for case in cases:
        repeat = case.get("message_repeat")
        messages.append(bytes.fromhex(repeat["byte"]) * repeat["count"] if repeat else bytes.fromhex(case["message"]))
    for case, digest in zip(cases, digests(plugins, algorithm, messages), strict=True):
        assert digest.hex() == case["digest"], case["id"]


@pytest.mark.parametrize("algorithm", sorted(HASHES))
def test_every_length_and_alignment(plugins, algorithm):
    """Lengths 0 to 300 behind each other: every length around two blocks, at every address modulo 16."""
    seed = 20
    generator = random.Random(seed)
    messages = [generator.randbytes(length) for length in range(301)] + [generator.randbytes(9001)]
    generator.shuffle(messages)
    for message, digest in zip(messages, digests(plugins, algorithm, messages), strict=True):
        assert digest == HASHES[algorithm](message), (seed, len(message))


@pytest.mark.parametrize("algorithm", sorted(HASHES))
@pytest.mark.parametrize("width", [0, 1, 32, 256])
def test_fixed_width(plugins, algorithm, width):
    generator = random.Random(width)
    messages = [generator.randbytes(width) for _ in range(33)]
    assert digests(plugins, algorithm, messages) == [HASHES[algorithm](message) for message in messages]
