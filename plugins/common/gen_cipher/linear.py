"""Searches small circuits for the linear maps of Kuznyechik and ARIA, and writes NAME_linear.cuh here.

    python linear.py NAME SECONDS        NAME: kuznyechik, aria

Kuznyechik's step adds to byte 15 a sum of multiples of bytes 0 to 14 (RFC 7801, 4.2). Equal coefficients stand in
pairs, so their bytes are added first; the sums are then shared greedily, and abc merges them into three-input
functions. ARIA's map (RFC 5794, 2.4.3) treats every bit of a byte alike: the circuit is that of one bit.
"""

from __future__ import annotations

import random
import sys
import time
from pathlib import Path

from netlist import SCRIPTS, Gates, Netlist, mapped, size, statements
from sbox import multiply

COEFFICIENTS = (148, 32, 133, 16, 194, 192, 1, 251)  # of bytes 0 and 14, 1 and 13, ..., 6 and 8, and of byte 7
POLYNOMIAL = 0x1C3
ARIA = (
    (3, 4, 6, 8, 9, 13, 14),
    (2, 5, 7, 8, 9, 12, 15),
    (1, 4, 6, 10, 11, 12, 15),
    (0, 5, 7, 10, 11, 13, 14),
    (0, 2, 5, 8, 11, 14, 15),
    (1, 3, 4, 9, 10, 14, 15),
    (0, 2, 7, 9, 10, 12, 13),
    (1, 3, 6, 8, 11, 12, 13),
    (0, 1, 4, 7, 10, 13, 15),
    (0, 1, 5, 6, 11, 12, 14),
    (2, 3, 5, 6, 8, 13, 15),
    (2, 3, 4, 7, 9, 12, 14),
    (1, 2, 6, 7, 9, 11, 12),
    (0, 3, 6, 7, 8, 10, 13),
    (0, 3, 4, 5, 9, 11, 14),
    (1, 2, 4, 5, 8, 10, 15),
)


def kuznyechik_netlist(rng: random.Random) -> Netlist:
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


def aria_netlist(rng: random.Random) -> Netlist:
    """Inputs x0 to x15, a bit of every byte, and outputs y0 to y15."""
    gates = Gates()
    y = gates.sums([f"x{i}" for i in range(16)], [sum(1 << j for j in row) for row in ARIA], rng)
    for r in range(16):
        gates.gates.append((f"y{r}", (y[r],), 0b10))
    return gates.gates


def check(name: str, found: Netlist, rng: random.Random) -> None:
    """Raises where the circuit is not the map, on random states."""
    for _ in range(200):
        state = rng.randbytes(16)
        if name == "aria":
            values = {f"x{i}": state[i] & 1 for i in range(16)}
            wanted = [sum(state[j] & 1 for j in row) & 1 for row in ARIA]
        else:
            values = {f"x{i}": state[i // 8] >> (i % 8) & 1 for i in range(128)}
            total = state[15]
            for i, coefficient in enumerate(COEFFICIENTS):
                total ^= multiply(state[i] ^ (state[14 - i] if i < 7 else 0), coefficient, POLYNOMIAL)
            wanted = [total >> i & 1 for i in range(8)]
        for gate, inputs, table in found:
            values[gate] = table >> sum(values[n] << i for i, n in enumerate(inputs)) & 1
        if [values[f"y{i}"] for i in range(len(wanted))] != wanted:
            raise ValueError("the circuit is wrong")


def emit(name: str, found: Netlist) -> str:
    """The circuit as C++."""
    lines = [f"// {size(found)} functions of three inputs. Written by gen_cipher/linear.py."]
    lines += ["#pragma once", '#include "lut.cuh"', ""]
    if name == "aria":
        lines.append("// The linear map on one bit of every byte.")
        lines.append("DEVICE void aria_mix_bit(Word (&y)[16], const Word (&x)[16]) {")
        names = {f"x{i}": f"x[{i}]" for i in range(16)}
        outputs = [f"y[{i}]" for i in range(16)]
    else:
        lines += [
            "// A step of the linear map. x[i] is byte i of the state in sliced form; byte 15 changes.",
            "DEVICE void kuznyechik_step(Word* const (&x)[16]) {",
        ]
        names = {f"x{i}": f"x[{i // 8}][{i % 8}]" for i in range(128)}
        outputs = [f"x[15][{i}]" for i in range(8)]
    lines += statements(found, names)
    lines += [f"    {output} = {names[f'y{i}']};" for i, output in enumerate(outputs)]
    return "\n".join([*lines, "}", ""])


def main() -> None:
    """Searches for the given time and writes the best."""
    name = sys.argv[1]
    rng = random.Random(1)
    best: Netlist | None = None
    end = time.monotonic() + float(sys.argv[2])
    while time.monotonic() < end or best is None:
        start = aria_netlist(rng) if name == "aria" else kuznyechik_netlist(rng)
        candidate = mapped(start, rng.choice(SCRIPTS), inputs=16 if name == "aria" else 128)
        check(name, candidate, rng)
        if best is None or size(candidate) < size(best):
            best = candidate
            print(size(best), flush=True)
            Path(f"{name}_linear.cuh").write_text(emit(name, best))


if __name__ == "__main__":
    main()
