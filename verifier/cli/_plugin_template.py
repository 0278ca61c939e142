"""What `verifier plugin new` makes: a small plugin that works, to be changed into another."""

from __future__ import annotations

import json
import re
import zlib
from pathlib import Path

from verifier.manifest import FILE_NAME

__all__ = ["write"]

_MANIFEST = """\
name = "{name}"
version = "1.0.0"
abi = 1
description = "Adler-32 checksums (RFC 1950)"
source = "{name}.cu"
vectors = "vectors.json"

[defines]              # macros of every build
UNROLLED = 1

# One table for each thing the plugin does. Columns and outputs are in the order of batch.inputs and batch.outputs.
[[operations]]
name = "verify"
algorithm = "{algorithm}"
inputs = ["input", "signature"]
widths = {{ signature = 4 }}
stages = ["{name}_verify"]

[[operations]]
name = "digest"
algorithm = "{algorithm}"
inputs = ["input"]
outputs = [{{ name = "digest", bytes = 4 }}]
stages = ["{name}_digest"]
"""

_SOURCE = """\
// Adler-32 (RFC 1950, section 8): two sums modulo 65521, of the bytes and of the sums.
#include "abi.cuh"

// Bytes of state, of scratch an item, and of scratch a lane.
PLUGIN_INFO(0, 0, 0)

constexpr u32 MODULUS = 65521, CHECKSUM_BYTES = 4;

DEVICE u32 adler32(Bytes input) {{
    u32 sum = 1, sums = 0;
    NO_UNROLL
    for (u32 i = 0; i < input.size; i++) {{
        sum = (sum + input.data[i]) % MODULUS;
        sums = (sums + sum) % MODULUS;
    }}
    return sums << 16 | sum;
}}

// One item. A lane that is not live pads the last warp: it may compute, and must not write.
DEVICE void verify_item(const Batch& batch, const Lane& lane, u32 item) {{
    if (!lane.live) return;
    const Bytes stated = value(batch.inputs[1], item);
    if (stated.size != CHECKSUM_BYTES) {{
        batch.codes[item] = SIGNATURE_LENGTH;  // malformed, not invalid
        return;
    }}
    const u32 sum = adler32(value(batch.inputs[0], item));
    u32 wrong = 0;
    for (u32 i = 0; i < CHECKSUM_BYTES; i++) wrong |= stated.data[i] ^ (u8)(sum >> (24 - 8 * i));
    batch.codes[item] = wrong ? INVALID : VALID;
}}
ITEM_STAGE({name}_verify, verify_item, 128, 1)

DEVICE void digest_item(const Batch& batch, const Lane& lane, u32 item) {{
    if (!lane.live) return;
    const u32 sum = adler32(value(batch.inputs[0], item));
    u8* const digest = batch.outputs[0] + item * batch.output_strides[0];
    for (u32 i = 0; i < CHECKSUM_BYTES; i++) digest[i] = (u8)(sum >> (24 - 8 * i));
    batch.codes[item] = VALID;
}}
ITEM_STAGE({name}_digest, digest_item, 128, 1)
"""

_README = """\
# {name}

Adler-32 as RFC 1950 has it: s1 = 1 + the sum of the bytes, s2 = the sum of all s1, both modulo 65521; the checksum is
s2 || s1, big-endian. Replace the mathematics, the known answers and this page; keep the sources of each answer.

    verifier plugin check {name}     # builds it for every target, runs the known answers on every device here
"""

_TEST = '''\
"""The known answers, on every device of this machine."""

import subprocess
import sys
from pathlib import Path


def test_known_answers() -> None:
    command = [sys.executable, "-m", "verifier", "plugin", "check", str(Path(__file__).parent)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
'''

_MESSAGES = (b"", b"a", b"abc", b"Wikipedia", bytes(range(256)), b"\xff" * 5552)


def write(name: str, parent: Path) -> Path:
    """Makes parent/name. Raises ValueError for a bad name, OSError where the folder exists."""
    if not re.fullmatch(r"[a-z][a-z0-9_]{0,63}", name):
        raise ValueError(f"{name!r}: a plugin's name is small letters, digits and _, at most 64, a letter first")
    folder = parent / name
    folder.mkdir()
    values = {"name": name, "algorithm": name.upper()}
    for file, text in (
        (f"{name}.cu", _SOURCE),
        ("README.md", _README),
        (f"test_{name}.py", _TEST),
        (FILE_NAME, _MANIFEST),
    ):
        (folder / file).write_text(text if text is _TEST else text.format(**values), encoding="utf-8")
    (folder / "vectors.json").write_text(_answers(values["algorithm"]), encoding="utf-8")
    return folder


def _answers(algorithm: str) -> str:
    """Good and bad ones: a gate that accepts everything is none."""
    good = [(f"bytes_{len(m)}", m, zlib.adler32(m).to_bytes(4, "big")) for m in _MESSAGES]
    verify = [_case(name, "VALID", input=m, signature=sum_) for name, m, sum_ in good]
    message, right = b"Wikipedia", zlib.adler32(b"Wikipedia").to_bytes(4, "big")
    verify += [_case(f"bit_{bit}", "INVALID", input=message, signature=_flip(right, bit)) for bit in (0, 17, 31)]
    verify.append(_case("another_message", "INVALID", input=b"Wikipedie", signature=right))
    odd = [_case(f"length_{n}", "SIGNATURE_LENGTH", input=message, signature=right[:n]) for n in (0, 3)]
    odd += [_case("length_5", "SIGNATURE_LENGTH", input=message, signature=right + b"\0")]
    odd += [_case("neighbour", "VALID", input=message, signature=right)]
    digest = [{**_case(name, "VALID", input=m), "outputs": {"digest": s.hex()}} for name, m, s in good]
    groups = [
        {"operation": "verify", "algorithm": algorithm, "cases": verify},
        {"operation": "verify", "algorithm": algorithm, "cases": odd},
        {"operation": "digest", "algorithm": algorithm, "cases": digest},
    ]
    return json.dumps({"source": "zlib, RFC 1950", "groups": groups}, indent=1) + "\n"


def _case(name: str, code: str, **inputs: bytes) -> dict[str, object]:
    return {"id": name, "source": "zlib", "inputs": {k: v.hex() for k, v in inputs.items()}, "code": code}


def _flip(data: bytes, bit: int) -> bytes:
    return (int.from_bytes(data, "big") ^ 1 << bit).to_bytes(len(data), "big")
