"""Searches a small circuit for a step of Kuznyechik's linear map, and writes kuznyechik_linear.cuh here.

    python linear.py SECONDS

The step adds to byte 15 a sum of multiples of bytes 0 to 14 (RFC 7801, 4.2). Equal coefficients stand in pairs, so
their bytes are added first; the sums are then shared greedily, and abc merges them into three-input functions.
"""

from __future__ import annotations

import random
import sys
import time
from pathlib import Path

from sbox import SCRIPTS, Gates, Netlist, mapped, multiply, size

COEFFICIENTS = (148, 32, 133, 16, 194, 192, 1, 251)  # of bytes 0 and 14, 1 and 13, ..., 6 and 8, and of byte 7
POLYNOMIAL = 0x1C3


def netlist(rng: random.Random) -> Netlist:
    """Inputs x0 to x127, outputs y0 to y7, the new byte 15."""
    gates = Gates()
    inputs = []
    for i in range(8):
        for bit in range(8):
            a, b = f"x{8 * i + bit}", f"x{8 * (14 - i) + bit}"
            inputs.append(a if i == 7 else gates.add(0b0110, a, b))
    rows = [0] * 8
    for i, coefficient in enumerate(COEFFICIENTS):
        for bit in range(8):
            value = multiply(1 << bit, coefficient, POLYNOMIAL)
            for r in range(8):
                rows[r] |= (value >> r & 1) << (8 * i + bit)
    y = gates.sums(inputs, rows, rng)
    for r in range(8):
        gates.gates.append((f"y{r}", (y[r], f"x{120 + r}"), 0b0110))
    return gates.gates


def check(found: Netlist, rng: random.Random) -> None:
    """Raises where the circuit is not the step, on random states."""
    for _ in range(200):
        state = rng.randbytes(16)
        values = {f"x{i}": state[i // 8] >> (i % 8) & 1 for i in range(128)}
        for name, inputs, table in found:
            values[name] = table >> sum(values[n] << i for i, n in enumerate(inputs)) & 1
        wanted = state[15]
        for i, coefficient in enumerate(COEFFICIENTS):
            wanted ^= multiply(state[i] ^ (state[14 - i] if i < 7 else 0), coefficient, POLYNOMIAL)
        if sum(values[f"y{i}"] << i for i in range(8)) != wanted:
            raise ValueError("the circuit is wrong")


def emit(found: Netlist) -> str:
    """The circuit as C++."""
    lines = [
        f"// A step of Kuznyechik's linear map: {size(found)} functions of three inputs. By gen_cipher/linear.py.",
        "#pragma once",
        '#include "lut.cuh"',
        "",
        "// x[i] is byte i of the state in sliced form; byte 15 changes.",
        "DEVICE void kuznyechik_step(Word* const (&x)[16]) {",
    ]
    names = {f"x{i}": f"x[{i // 8}][{i % 8}]" for i in range(128)}
    for i, (gate, inputs, table) in enumerate(found):
        full = table
        for k in range(len(inputs), 3):
            full |= full << (1 << k)
        names[gate] = f"t{i}"
        a, b, c = ([names[n] for n in inputs] + ["x[0][0]"] * 3)[:3]
        index = sum(((full >> ((j >> 2) | (j >> 1 & 1) << 1 | (j & 1) << 2)) & 1) << j for j in range(8))
        lines.append(f"    const Word t{i} = lut<{index:#04x}>({a}, {b}, {c});")
    lines += [f"    x[15][{i}] = {names[f'y{i}']};" for i in range(8)]
    return "\n".join([*lines, "}", ""])


def main() -> None:
    """Searches for the given time and writes the best."""
    rng = random.Random(1)
    best: Netlist | None = None
    end = time.monotonic() + float(sys.argv[1])
    while time.monotonic() < end or best is None:
        candidate = mapped(netlist(rng), rng.choice(SCRIPTS), inputs=128)
        check(candidate, rng)
        if best is None or size(candidate) < size(best):
            best = candidate
            print(size(best), flush=True)
            Path("kuznyechik_linear.cuh").write_text(emit(best))


if __name__ == "__main__":
    main()
