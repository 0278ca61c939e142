"""The parsers of encodings.cuh, called on lists of byte strings."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from _build import Plugin, build
from _reference import Curve, RefusedError, parse_key, parse_signature

from verifier.model import Code
from verifier.v1 import verifier_pb2

Parsed = Code | tuple[int, int, int]


class EncodingProbe:
    """Answers are a Code where the value is refused, else (r, s, recovery) or (x, y, compressed * 2 + odd)."""

    def __init__(self, flags: Sequence[str] = ()) -> None:
        self.plugin = Plugin(build(Path(__file__).with_name("probe_encodings.cu"), flags=flags))

    def signatures(self, encoding: str, values: Sequence[bytes]) -> list[Parsed]:
        return self._run(
            "signature", values, [verifier_pb2.SignatureEncoding.Value(f"SIGNATURE_ENCODING_{encoding}")]
        )

    def keys(self, curve: Curve, encoding: str, values: Sequence[bytes]) -> list[Parsed]:
        algorithm = verifier_pb2.Algorithm.Value(f"ALGORITHM_{curve.name}")
        return self._run("key", values, [0, verifier_pb2.KeyEncoding.Value(f"KEY_ENCODING_{encoding}"), algorithm])

    def _run(self, stage: str, values: Sequence[bytes], parameters: Sequence[int]) -> list[Parsed]:
        result = self.plugin.run([stage], [values], parameters=parameters, outputs=[65])
        rows = [row.tobytes() for row in result.outputs[0]]
        numbers = [(int.from_bytes(row[:32], "big"), int.from_bytes(row[32:64], "big"), row[64]) for row in rows]
        return [Code(code) if code else parsed for code, parsed in zip(result.codes, numbers, strict=True)]


def expected_signature(encoding: str, value: bytes) -> Parsed:
    """The straight Python answer in the probe's form."""
    try:
        return parse_signature(encoding, value)
    except RefusedError as refused:
        return refused.code


def expected_key(curve: Curve, encoding: str, value: bytes) -> Parsed:
    """The straight Python answer in the probe's form."""
    try:
        x, y, odd = parse_key(curve, encoding, value)
    except RefusedError as refused:
        return refused.code
    return x, y or 0, (y is None) * 2 + odd
