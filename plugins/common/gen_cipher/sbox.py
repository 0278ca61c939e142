"""Searches small circuits of three-input functions for the S-boxes, and writes sbox_NAME.cuh here.

    python sbox.py NAME SECONDS          NAME: sm4, aria_s1, aria_x1, aria_s2, aria_x2, kuznyechik, kuznyechik_inverse

Needs Berkeley abc. An S-box that is an inversion between affine maps becomes an inversion in a tower field, as in
Canright (CHES 2005) with the sums shared greedily (Paar 1997); Kuznyechik's is taken apart as in Biryukov, Perrin and
Udovenko (EUROCRYPT 2016). abc then maps the gates to functions of three inputs. Every candidate is checked on all 256
inputs. The result is not the smallest, only the smallest found.
"""

from __future__ import annotations

import random
import sys
import time
from itertools import product
from pathlib import Path

from netlist import SCRIPTS, Gates, Netlist, mapped, size, statements

PI = bytes.fromhex(
    "fceedd11cf6e3116fbc4fada23c5044de977f0db932e99ba1736f1bb14cd5fc1f918655ae25cef21811c3c428b018e4f"
    "058402aee36a8fa0060bed987fd4d31feb342c51eac848abf22a68a2fd3aceccb5700e56080c7612bf7213479cb75d87"
    "15a19629107b9ac7f391786f9d9eb2b13275193dff358a7e6d54c680c3bd0d57dff524a93ea843c9d779d6f67c22b903"
    "e00fecde7a94b0bcdce828504e330a4aa79760731e0062441ab83882649f2641ad454692275e552f8ca3a57d69d5953b"
    "0758b34086ac1df730376be488d9e789e11b83494c3ff8fe8d53aa90cad88561207167a42d2b095bcb9b25d0bee56c52"
    "59a674d2e6f4b4c0d166afc2394b63b6"
)


def multiply(a: int, b: int, polynomial: int) -> int:
    """Product in GF(2)[x] / polynomial of degree 8."""
    result = 0
    while b:
        if b & 1:
            result ^= a
        a <<= 1
        if a & 0x100:
            a ^= polynomial
        b >>= 1
    return result


def power(x: int, n: int, polynomial: int) -> int:
    """x to the n-th."""
    result = 1
    for _ in range(n):
        result = multiply(result, x, polynomial)
    return result


def linear(columns: list[int], x: int) -> int:
    """The map whose value for bit i is columns[i]."""
    result = 0
    for i, column in enumerate(columns):
        if x >> i & 1:
            result ^= column
    return result


def compose(outer: list[int], inner: list[int]) -> list[int]:
    """The columns of outer after inner."""
    return [linear(outer, column) for column in inner]


def inverted(columns: list[int]) -> list[int]:
    """The inverse of an 8 x 8 map."""
    values = {linear(columns, x): x for x in range(256)}
    assert len(values) == 256
    return [values[1 << i] for i in range(8)]


def tables() -> dict[str, tuple[list[int], int, list[int], int, list[int], int]]:
    """Name: S-box, polynomial, columns and constant of the map before the inversion, and of the one after it."""
    unit = [1 << i for i in range(8)]
    s1 = [0x1F, 0x3E, 0x7C, 0xF8, 0xF1, 0xE3, 0xC7, 0x8F]
    s2 = [0xAC, 0xC5, 0x12, 0xCF, 0x5B, 0x5F, 0x85, 0xEE]
    eighth = [power(1 << i, 8, 0x11B) for i in range(8)]
    s2 = compose(s2, eighth)  # x^247 is the inverse to the eighth
    # SM4's map is circulant: row r is 11010011 turned right by r, the highest bit first.
    rows = [0b11010011 >> k | (0b11010011 << (8 - k)) & 0xFF for k in range(8)]
    sm4 = [sum((rows[r] >> (7 - c) & 1) << (7 - r) for r in range(8)) for c in range(7, -1, -1)]
    found = {}
    for name, polynomial, before, b, after, a in (
        ("aria_s1", 0x11B, unit, 0, s1, 0x63),
        ("aria_s2", 0x11B, unit, 0, s2, 0xE2),
        ("aria_x1", 0x11B, inverted(s1), linear(inverted(s1), 0x63), unit, 0),
        ("aria_x2", 0x11B, inverted(s2), linear(inverted(s2), 0xE2), unit, 0),
        ("sm4", 0x1F5, sm4, 0xD3, sm4, 0xD3),
    ):
        box = [a ^ linear(after, power(b ^ linear(before, x), 254, polynomial)) for x in range(256)]
        found[name] = (box, polynomial, before, b, after, a)
    return found


class Tower:
    """GF(((2^2)^2)^2) in normal bases: [W^2, W], [Z^4, Z], [Y^16, Y]; norms of Z and Y are parameters."""

    def __init__(self, n: int, m: int) -> None:
        self.n, self.m = n, m

    @staticmethod
    def times4(a: int, b: int) -> int:
        """Product in GF(2^2)."""
        a1, a0, b1, b0 = a >> 1, a & 1, b >> 1, b & 1
        e = (a1 ^ a0) & (b1 ^ b0)
        return ((a1 & b1) ^ e) << 1 | ((a0 & b0) ^ e)

    def times16(self, a: int, b: int) -> int:
        """Product in GF(2^4)."""
        a1, a0, b1, b0 = a >> 2, a & 3, b >> 2, b & 3
        e = self.times4(self.times4(a1 ^ a0, b1 ^ b0), self.n)
        return (self.times4(a1, b1) ^ e) << 2 | (self.times4(a0, b0) ^ e)

    def times256(self, a: int, b: int) -> int:
        """Product in GF(2^8)."""
        a1, a0, b1, b0 = a >> 4, a & 15, b >> 4, b & 15
        e = self.times16(self.times16(a1 ^ a0, b1 ^ b0), self.m)
        return (self.times16(a1, b1) ^ e) << 4 | (self.times16(a0, b0) ^ e)

    def is_field(self) -> bool:
        """Whether every element but 0 has an inverse."""
        return all(any(self.times256(a, b) == 0xFF for b in range(256)) for a in range(1, 256))

    def isomorphisms(self, polynomial: int) -> list[list[int]]:
        """Columns of the maps from the polynomial's field to this one."""
        found = []
        for root in range(2, 256):
            powers = [0xFF]
            for _ in range(8):
                powers.append(self.times256(powers[-1], root))
            total = 0
            for i in range(9):
                if polynomial >> i & 1:
                    total ^= powers[i]
            if total == 0:
                found.append(powers[:8])
        return found


def forms(bits: list[int]) -> list[int]:
    """The nine sums of four linear forms that a product in GF(16) needs (Karatsuba twice)."""
    found = []
    for pair in ((bits[0], bits[1]), (bits[2], bits[3]), (bits[0] ^ bits[2], bits[1] ^ bits[3])):
        found += [pair[0], pair[1], pair[0] ^ pair[1]]
    return found


def inversion_netlist(name: str, rng: random.Random) -> Netlist:
    """x0..x7 to y0..y7 by an inversion in a random tower field."""
    box, polynomial, before, b, after, a = tables()[name]
    while True:
        tower = Tower(rng.choice([1, 2]), rng.randrange(1, 16))
        if tower.is_field():
            break
    to_tower = rng.choice(tower.isomorphisms(polynomial))
    enter, leave = compose(to_tower, before), compose(after, inverted(to_tower))
    constant = linear(to_tower, b)
    gates = Gates()
    inputs = [f"x{i}" for i in range(8)]
    rows = [sum((enter[c] >> r & 1) << c for c in range(8)) for r in range(8)]  # bit r of the tower value
    low, high = forms(rows[:4]), forms(rows[4:])
    flip = [constant >> r & 1 for r in range(8)]
    flips = forms(flip[:4]) + forms(flip[4:])
    # m * (g1 + g0)^2 is linear in the input.
    squared = [0] * 4
    for c in range(8):
        value = enter[c] >> 4 ^ enter[c] & 15
        value = tower.times16(tower.times16(value, value), tower.m)
        for r in range(4):
            squared[r] |= (value >> r & 1) << c
    whole = constant >> 4 ^ constant & 15
    whole = tower.times16(tower.times16(whole, whole), tower.m)
    wanted = low + high + squared
    names = gates.sums(inputs, wanted, rng)
    names = [
        gates.add(0b01, n) if f else n
        for n, f in zip(names, [*flips, *(whole >> r & 1 for r in range(4))], strict=True)
    ]
    low_names, high_names, square_names = names[:9], names[9:18], names[18:]

    # How the nine products of a GF(16) multiplication add up: rows of bits over the products.
    def gather() -> list[int]:
        result = [0] * 4
        for i in range(9):
            part, which = divmod(i, 3)
            four = {0: 0b01, 1: 0b10, 2: 0b11}[which]  # a0 b0, a1 b1, (a1+a0)(b1+b0): the bits of GF(4) it adds to
            if part == 2:
                sixteen = tower.times4(four, tower.n)
                sixteen = sixteen << 2 | sixteen
            else:
                sixteen = four << (2 * part)
            for r in range(4):
                result[r] |= (sixteen >> r & 1) << i
        return result

    rows16 = gather()
    products = [gates.add(0b1000, x, y) for x, y in zip(low_names, high_names, strict=True)]
    d = gates.sums(products + square_names, [row | 1 << (9 + r) for r, row in enumerate(rows16)], rng)
    inverse16 = [next((y for y in range(16) if tower.times16(x, y) == 15), 0) for x in range(16)]
    e = [gates.add(sum((inverse16[x] >> r & 1) << x for x in range(16)), *d) for r in range(4)]
    e_forms = gates.sums(e, forms([1, 2, 4, 8]), rng)
    last = [
        gates.add(0b1000, x, y) for x, y in zip(e_forms, low_names, strict=True)
    ]  # times g0: the coefficient of Y^16
    last += [gates.add(0b1000, x, y) for x, y in zip(e_forms, high_names, strict=True)]
    outputs = [0] * 8
    for i in range(18):
        value = sum((rows16[r] >> (i % 9) & 1) << r for r in range(4)) << (4 if i < 9 else 0)
        value = linear(leave, value)
        for r in range(8):
            outputs[r] |= (value >> r & 1) << i
    y = gates.sums(last, outputs, rng)
    for r in range(8):
        gates.gates.append((f"y{r}", (y[r],), 0b01 if a >> r & 1 else 0b10))
    check(gates.gates, box)
    return gates.gates


def kuznyechik_netlist(inverse: bool, rng: random.Random) -> Netlist:
    """x0..x7 to y0..y7 by the decomposition of pi."""
    nibble = lambda text: [int(c, 16) for c in text]  # noqa: E731
    invert = nibble("01c86f4e3dba2975")
    nu0, nu1 = nibble("253b69ea04f18dc7"), nibble("76c90f8145bed23a")
    phi, sigma = nibble("b2b8c41c6358e36b"), nibble("cd048bae3952f167")
    # Rows from bit 7 down, and the columns of a row from bit 7 down.
    alpha = list(reversed(bytes.fromhex("084143ef8a441a20")))
    omega = list(reversed(bytes.fromhex("0a04209a08448201")))

    def times(a: int, b: int) -> int:
        result = 0
        for i in range(4):
            if b >> i & 1:
                result ^= a << i
        for i in (6, 5, 4):
            if result >> i & 1:
                result ^= 0b11001 << (i - 4)
        return result

    gates = Gates()

    def table(values: list[int], inputs: list[str]) -> list[str]:
        return [gates.add(sum((values[x] >> r & 1) << x for x in range(16)), *inputs) for r in range(4)]

    def product_of(a: list[str], b: list[str]) -> list[str]:
        terms = {}
        for i, j in product(range(4), range(4)):
            terms[i, j] = gates.add(0b1000, a[i], b[j])
        names, keys = list(terms.values()), list(terms)
        rows = [0] * 4
        for k, (i, j) in enumerate(keys):
            value = times(1 << i, 1 << j)
            for r in range(4):
                rows[r] |= (value >> r & 1) << k
        return gates.sums(names, rows, rng)

    def unused(values: list[int]) -> list[int]:
        return [values.index(y) for y in range(16)]

    def invert_map(rows: list[int]) -> list[int]:
        columns = [sum((rows[r] >> c & 1) << r for r in range(8)) for c in range(8)]
        back = inverted(columns)
        return [sum((back[c] >> r & 1) << c for c in range(8)) for r in range(8)]

    first, last = (invert_map(omega), invert_map(alpha)) if inverse else (alpha, omega)
    x = gates.sums([f"x{i}" for i in range(8)], first, rng)
    right, left = x[:4], x[4:]
    if not inverse:
        zero = gates.add(1, *right)
        with_zero = table(nu0, left)
        without = table(nu1, product_of(left, table(invert, right)))
        left = [gates.add(0b11001010, a, b, zero) for a, b in zip(without, with_zero, strict=True)]
        right = table(sigma, product_of(right, table(phi, left)))
    else:
        # phi has no zero, so l gives r; then the branch on r is undone.
        phi_inverse = [next(y for y in range(16) if times(phi[v], y) == 1) for v in range(16)]
        right = product_of(table(unused(sigma), right), table(phi_inverse, left))
        zero = gates.add(1, *right)
        with_zero = table(unused(nu0), left)
        invert_inverse = [next((y for y in range(16) if times(invert[v], y) == 1), 0) for v in range(16)]
        without = product_of(table(unused(nu1), left), table(invert_inverse, right))
        left = [gates.add(0b11001010, a, b, zero) for a, b in zip(without, with_zero, strict=True)]
    y = gates.sums(right + left, last, rng)
    for r in range(8):
        gates.gates.append((f"y{r}", (y[r],), 0b10))
    check(gates.gates, [PI.index(v) for v in range(256)] if inverse else list(PI))
    return gates.gates


def check(netlist: Netlist, box: list[int]) -> None:
    """Raises where the netlist is not the S-box."""
    for x in range(256):
        values = {f"x{i}": x >> i & 1 for i in range(8)}
        for name, inputs, table in netlist:
            values[name] = table >> sum(values[n] << i for i, n in enumerate(inputs)) & 1
        got = sum(values[f"y{i}"] << i for i in range(8))
        if got != box[x]:
            raise ValueError(f"S({x:02x}) is {got:02x}, not {box[x]:02x}")


def emit(name: str, netlist: Netlist) -> str:
    """The circuit as C++."""
    lines = [
        f"// The S-box {name}: {size(netlist)} functions of three inputs. Written by gen_cipher/sbox.py.",
        "#pragma once",
        '#include "lut.cuh"',
        "",
        f"DEVICE void sbox_{name}(Word (&x)[8]) {{",
    ]
    names = {f"x{i}": f"x[{i}]" for i in range(8)}
    lines += statements(netlist, names)
    lines += [f"    x[{i}] = {names[f'y{i}']};" for i in range(8)]
    return "\n".join([*lines, "}", ""])


def main() -> None:
    """Searches for the given time and writes the best."""
    name, seconds = sys.argv[1], float(sys.argv[2])
    rng = random.Random(int(sys.argv[3]) if len(sys.argv) > 3 else 1)
    kuznyechik = name.startswith("kuznyechik")
    box = (
        tables()[name][0]
        if not kuznyechik
        else list(PI)
        if name == "kuznyechik"
        else [PI.index(v) for v in range(256)]
    )
    best: Netlist | None = None
    end = time.monotonic() + seconds
    while time.monotonic() < end or best is None:
        start = kuznyechik_netlist(name.endswith("inverse"), rng) if kuznyechik else inversion_netlist(name, rng)
        candidate = mapped(start, rng.choice(SCRIPTS))
        for _ in range(3):
            again = mapped(candidate, rng.choice(SCRIPTS))
            if size(again) >= size(candidate):
                break
            candidate = again
        if best is None or size(candidate) < size(best):
            check(candidate, box)
            best = candidate
            print(name, size(best), flush=True)
            Path(f"sbox_{name}.cuh").write_text(emit(name, best))


if __name__ == "__main__":
    main()
