"""Run by test_sanitizers.py in a process of its own, with the sanitizers' libraries loaded first.

Builds a source with AddressSanitizer and UndefinedBehaviorSanitizer and runs malformed corpora through it, every
column in a block of exactly its size. A finding ends the process with an error.
"""

from __future__ import annotations

import random
import sys

import _build
import _gpu_shim
from _answers import BuiltPlugin
from _corpus import keys, signatures
from _probe import EncodingProbe, expected_key, expected_signature
from _reference import CURVES, P256, SECP256K1

FLAGS = [
    *("-Og", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-fno-omit-frame-pointer"),
    *("--param", "asan-instrumentation-with-call-threshold=0"),  # calls, not inline checks: a fraction to compile
    "-fno-sanitize=pointer-overflow",  # columns are biased, so that one base serves every chunk
]
# UndefinedBehaviorSanitizer's checks of all field arithmetic take g++ many minutes to compile.
LIBRARY_FLAGS = ["-fsanitize=address" if flag == "-fsanitize=address,undefined" else flag for flag in FLAGS]


def exact_columns() -> None:
    """Columns are copied into blocks without room behind them."""
    made = _build.column
    _build.column = lambda values: tuple(  # type: ignore[assignment]
        part.copy() if hasattr(part, "copy") else part for part in made(values)
    )


def parsers(seed: int, count: int) -> int:
    """Each value alone, so that whatever is read beyond it is beyond its block."""
    generator = random.Random(seed)
    probe = EncodingProbe(FLAGS)
    done = 0
    for encoding in ("RAW_RS", "RAW_RSV", "RAW_RS_KEY", "DER_STRICT", "DER_LAX"):
        for value in signatures(SECP256K1, encoding, count, generator):
            assert probe.signatures(encoding, [value]) == [expected_signature(encoding, value)], value.hex()
            done += 1
    for curve in CURVES.values():
        for encoding in ("RAW_XY", "SEC1_UNCOMPRESSED", "SEC1_COMPRESSED", "SPKI", "IN_SIGNATURE"):
            for value in keys(curve, encoding, count // 2, generator):
                assert probe.keys(curve, encoding, [value]) == [expected_key(curve, encoding, value)], value.hex()
                done += 1
    return done


def library(seed: int, count: int) -> int:
    """The whole ecdsa plugin, AddressSanitizer only: known answers, then malformed items under every encoding."""
    generator = random.Random(seed)
    plugin = BuiltPlugin("ecdsa", LIBRARY_FLAGS)
    done = plugin.check_known_answers()
    for curve in (P256, SECP256K1):
        for signature_encoding in ("RAW_RS", "DER_STRICT", "DER_LAX"):
            for key_encoding in ("RAW_XY", "SEC1_UNCOMPRESSED", "SEC1_COMPRESSED", "SPKI"):
                columns = {
                    "input": [generator.randbytes(generator.choice((32, 32, 0, 31, 33))) for _ in range(count)],
                    "signature": signatures(curve, signature_encoding, count, generator),
                    "key": keys(curve, key_encoding, count, generator),
                }
                result = plugin.run(
                    "verify",
                    curve.name,
                    columns,
                    signature_encoding=signature_encoding,
                    key_encoding=key_encoding,
                    input_kind=generator.choice(("DIGEST", "MESSAGE")),
                )
                assert result.codes.all()
                done += count
        columns = {
            "input": [generator.randbytes(generator.choice((32, 32, 31))) for _ in range(count)],
            "signature": signatures(curve, "RAW_RSV", count, generator),
        }
        assert plugin.run("recover", curve.name, columns, address_hash="KECCAK256").codes.all()
        done += count
    return done


def digests(seed: int) -> int:
    """Every length around the block boundaries, each message alone."""
    generator = random.Random(seed)
    done = 0
    for name, algorithms in (
        ("sm3", ["SM3"]),
        ("sha256", ["SHA256", "SHA256D"]),
        ("keccak", ["KECCAK256", "SHA3_256"]),
    ):
        plugin = BuiltPlugin(name, FLAGS)
        done += plugin.check_known_answers()
        for algorithm in algorithms:
            for length in range(280):
                assert plugin.run("digest", algorithm, {"input": [generator.randbytes(length)]}).codes.all()
                done += 1
    return done


def gpu_loads(seed: int) -> int:
    """The GPU's branches: each message alone, at every address modulo 16."""
    generator = random.Random(seed)
    done = 0
    for plugin, kernel in (("sm3", "sm3_digest"), ("keccak", "keccak256_digest")):
        for length in (*range(10), *range(60, 70), *range(125, 140), 200):
            for shift in range(16):
                source = _build.PLUGINS / plugin / f"{plugin}.cu"
                value = generator.randbytes(length)
                codes, _ = _gpu_shim.run(source, kernel, [value], 32, threads=32, shift=shift, flags=FLAGS)
                assert codes.all()
                done += 1
    source = _build.ROOT / "tests" / "plugins" / "probe_encodings.cu"
    for shift in range(16):
        for number, encoding in enumerate(("RAW_RS", "DER_STRICT", "DER_LAX", "RAW_RSV", "RAW_RS_KEY"), 1):
            for value in signatures(SECP256K1, encoding, 20, generator):
                numbers = [number]
                _gpu_shim.run(
                    source, "signature", [value], 65, threads=32, parameters=numbers, shift=shift, flags=FLAGS
                )
                done += 1
        for number, encoding in enumerate(
            ("RAW_XY", "SEC1_UNCOMPRESSED", "SEC1_COMPRESSED", "SPKI", "IN_SIGNATURE"), 1
        ):
            for value in keys(P256, encoding, 20, generator):
                numbers = [0, number, 2]
                _gpu_shim.run(source, "key", [value], 65, threads=32, parameters=numbers, shift=shift, flags=FLAGS)
                done += 1
    return done


if __name__ == "__main__":
    exact_columns()
    what, seed, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    runs = {
        "parsers": parsers,
        "library": library,
        "digests": lambda seed, _: digests(seed),
        "gpu_loads": lambda seed, _: gpu_loads(seed),
    }
    print(f"{what}: {runs[what](seed, count)} items, seed {seed}")
