"""The three primes: Montgomery or plain reduction of a 512-bit product, and folding of linear results.

Values are lazy: any integer below 2^256 stands for its residue. A linear operation gives V = r + k 2^256 with a small
k, positive or negative, and folds it once: r + k DELTA, where DELTA = 2^256 - p. Where that leaves [0, 2^256) again,
with a chance near 2^-32 and less, the result is wrong and the block's flag is raised.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from ptx import Block, Operand, Register, words

__all__ = ["P256", "Prime", "Secp256k1", "Sm2"]


class Prime:
    """What differs between the primes. `radix`: a product comes out divided by it."""

    name: ClassVar[str]
    p: ClassVar[int]
    radix: ClassVar[int]
    zero: ClassVar[bool]  # blocks catch carries with a register that is zero
    swap: ClassVar[bool]  # order of the factors in products, as it came out faster
    exact_product: ClassVar[bool]  # products never raise the flag

    def reduce(self, block: Block, t: Sequence[Operand], out: Sequence[Register]) -> None:
        """out = t / radix mod p, below 2^256, for the 16 words t."""
        raise NotImplementedError

    def fold(self, block: Block, k: Register, limit: int, mask: Register | None) -> list[Operand]:
        """The words of k DELTA for 0 <= k <= limit. `mask` holds -k where that was computed already."""
        raise NotImplementedError

    def modulus(self, block: Block, bit: Register, mask: Register, offset: int) -> list[Operand]:
        """The words of p + offset (0 or 1) where bit = 1 and mask = -1, and of zero where both are 0."""
        by_value: dict[int, Operand] = {0: 0, 1: bit, 0xFFFFFFFF: mask}
        return [self._masked(block, word, mask, by_value) for word in words(self.p + offset)]

    @staticmethod
    def _masked(block: Block, word: int, mask: Register, by_value: dict[int, Operand]) -> Operand:
        if word not in by_value:
            by_value[word] = register = block.new("k")
            if word == 0xFFFFFFFE:
                block("shl.b32", register, mask, 1)
            else:
                block("and.b32", register, mask, word)
        return by_value[word]


class _Chain:
    """A carry chain that is left and taken up again, its carry kept in a register meanwhile.

    c + (2^32 - 1) carries exactly where c = 1, whether the flag means carry, borrow or no borrow.
    """

    def __init__(self, block: Block, kind: str) -> None:
        self.block, self.kind = block, kind
        self.carry: Register | None = None

    def __call__(self, steps: Sequence[tuple[Register, Operand, Operand]], end: str = "save") -> None:
        """d = x + y (or x - y) for each (d, x, y). `end`: save the carry, "drop" it, or "keep" it in the flag."""
        block, live = self.block, self.carry is not None
        if live:
            block("add.cc.u32", block.new("z"), str(self.carry), 0xFFFFFFFF)
        for i, (d, x, y) in enumerate(steps):
            quiet = end == "drop" and i == len(steps) - 1
            block(f"{self.kind}{'c' if live else ''}{'' if quiet else '.cc'}.u32", d, x, y)
            live = True
        if end == "save":
            self.carry = block.new("k")
            block("addc.u32", self.carry, 0, 0)


class Sm2(Prime):
    """p = 2^256 - 2^224 - 2^96 + 2^64 - 1 in Montgomery form.

    p = -1 mod 2^64, so that the Montgomery digit of a word is the word itself; nine digits (radix 2^288) instead of
    eight bring any product below 2^512 to below 2^224 + p < 2^256. With x = 2^32, p + 1 = x^2 (x - 1)(x^5 - 1):
    for the digits M the sum T + M p is T - M + x^2 N (x^5 - 1) with N = M (x - 1), additions only. The digits appear
    as the sums go along, which is why three chains are interleaved.
    """

    name = "Sm2"
    p = 2**256 - 2**224 - 2**96 + 2**64 - 1
    radix = 2**288
    zero = True
    swap = False
    exact_product = True

    def reduce(self, block: Block, t: Sequence[Operand], out: Sequence[Register]) -> None:
        """T + M p in interleaved chains."""
        m: list[Operand] = [t[0], t[1], *(block.new("m") for _ in range(7))]
        # n = m (x - 1) is subtracted from below: -n[i] = m[i] - m[i - 1], so n holds the digits of M (1 - x).
        n: list[Operand] = [m[0], *(block.new("n") for _ in range(9))]
        u = {i: block.new("u") for i in (7, 8, 9, 10, 11, 12, 13, 14, 15, 16)}
        sign = block.new("n")
        differ, plus, minus = _Chain(block, "sub"), _Chain(block, "add"), _Chain(block, "sub")

        def difference(i: int) -> tuple[Register, Operand, Operand]:
            return str(n[i]), m[i], m[i - 1]

        def sum2(d: Operand, i: int) -> tuple[Register, Operand, Operand]:
            return str(d), t[i], n[i - 2]

        differ([difference(1)])
        plus([sum2(m[2], 2), sum2(m[3], 3)])
        differ([difference(2), difference(3)])
        plus([sum2(m[4], 4), sum2(m[5], 5)])
        differ([difference(4), difference(5)])
        plus([sum2(m[6], 6), sum2(u[7], 7)])
        minus([(str(m[7]), u[7], n[0])])
        differ([difference(6), difference(7)])
        plus([sum2(u[8], 8), sum2(u[9], 9)])
        minus([(str(m[8]), u[8], n[1]), (out[0], u[9], n[2])])
        differ([difference(8), (str(n[9]), "z", m[8]), (sign, 0, 0)], end="drop")
        plus([(u[10], t[10], n[8]), (u[11], t[11], n[9]), *((u[i], t[i], sign) for i in range(12, 16)),
              (u[16], sign, 0)], end="drop")  # fmt: skip
        minus([(out[i - 9], u[i], n[i - 7]) for i in range(10, 17)], end="drop")

    def fold(self, block: Block, k: Register, limit: int, mask: Register | None) -> list[Operand]:
        """DELTA = 2^224 + 2^96 - 2^64 + 1: k in words 0 and 7, and k (2^32 - 1) in words 2 and 3."""
        low: Operand
        high: Operand
        if limit == 1:
            low, high = mask or block.new("l"), 0
            if mask is None:
                block("neg.s32", low, k)
        elif limit == 2:
            low, high = block.new("l"), block.new("l")
            block("neg.s32", low, k)
            block("shr.u32", high, k, 1)
        else:
            low, high = block.wide(k, 0xFFFFFFFF)
        return [k, 0, low, high, 0, 0, 0, k]


class P256(Prime):
    """p = 2^256 - 2^224 + 2^192 + 2^96 - 1 in Montgomery form.

    p = -1 mod 2^96, so that the Montgomery digit of a word is the word itself. With x = 2^32,
    p + 1 = x^8 - x^7 + x^6 + x^3: the reduction is four shifted copies of the digits M. After nine digits a product
    is below 2^256 + 2^193; the flag tells the few above 2^256.
    """

    name = "P256"
    p = 2**256 - 2**224 + 2**192 + 2**96 - 1
    radix = 2**288
    zero = True
    swap = False
    exact_product = False

    def reduce(self, block: Block, t: Sequence[Operand], out: Sequence[Register]) -> None:
        """T + M p in interleaved chains."""
        m: list[Operand] = [t[0], t[1], t[2], *(block.new("m") for _ in range(6))]
        u3 = {i: block.new("u") for i in range(6, 17)}  # t + x^3 M
        u6 = {i: block.new("v") for i in range(7, 17)}  # + x^6 M
        u7 = {i: block.new("y") for i in range(8, 17)}  # - x^7 M
        plus3, plus6, minus7, plus8 = (_Chain(block, kind) for kind in ("add", "add", "sub", "add"))
        plus3([(str(m[i]), t[i], m[i - 3]) for i in (3, 4, 5)])
        plus3([(u3[i], t[i], m[i - 3]) for i in (6, 7, 8)])
        plus6([(str(m[6]), u3[6], m[0]), *((u6[i], u3[i], m[i - 6]) for i in (7, 8))])
        minus7([(str(m[7]), u6[7], m[0]), (u7[8], u6[8], m[1])])
        plus8([(str(m[8]), u7[8], m[0])])
        plus3([(u3[i], t[i], m[i - 3]) for i in (9, 10, 11)] + [(u3[i], t[i], 0) for i in range(12, 16)]
              + [(u3[16], 0, 0)], end="drop")  # fmt: skip
        plus6([(u6[i], u3[i], m[i - 6]) for i in range(9, 15)] + [(u6[i], u3[i], 0) for i in (15, 16)], end="drop")
        # The borrow from above word 16 meets the last chain's carry there: only their difference is an overflow.
        minus7([(u7[i], u6[i], m[i - 7]) for i in range(9, 16)] + [(u7[16], u6[16], 0)], end="keep")
        block("subc.u32", "flag", "flag", 0)
        plus8([(out[i - 9], u7[i], m[i - 8]) for i in range(9, 17)], end="keep")
        block.catch("flag", "flag")

    def fold(self, block: Block, k: Register, limit: int, mask: Register | None) -> list[Operand]:
        """DELTA = 2^224 - 2^192 - 2^96 + 1."""
        if limit == 1:
            if mask is None:
                mask = block.new("l")
                block("neg.s32", mask, k)
            above = block.new("l")
            block("shl.b32", above, mask, 1)
            return [k, 0, 0, mask, mask, mask, above, 0]
        low, sign, sixth, top = (block.new("l") for _ in range(4))
        block("sub.cc.u32", low, 0, k)
        block("subc.u32", sign, 0, 0)  # all ones where k > 0
        block("sub.u32", sixth, sign, k)
        block("add.u32", top, sign, k)
        return [k, 0, 0, low, sign, sign, sixth, top]


class Secp256k1(Prime):
    """p = 2^256 - 2^32 - 977, plain: 2^256 = 2^32 + 977, so the upper half is multiplied by that and added, twice."""

    name = "Secp256k1"
    p = 2**256 - 2**32 - 977
    radix = 1
    zero = False
    swap = True
    exact_product = False

    def reduce(self, block: Block, t: Sequence[Operand], out: Sequence[Register]) -> None:
        """The upper half times 2^32 + 977 onto the lower half, twice."""

        def run(start: int, addend: Sequence[Operand]) -> list[Operand]:
            """addend + 977 times the words start, start + 2, ... of t: nine words."""
            sums: list[Operand] = [block.new("e") for _ in range(9)]
            for i in range(4):
                block(
                    "madc.lo.cc.u32" if i else "mad.lo.cc.u32", str(sums[2 * i]), t[start + 2 * i], 977, addend[2 * i]
                )
                block("madc.hi.cc.u32", str(sums[2 * i + 1]), t[start + 2 * i], 977, addend[2 * i + 1])
            block("addc.u32", str(sums[8]), 0, 0)
            return sums

        even = run(8, t[:8])  # the lower half + 977 (words 8, 10, ...)
        odd = run(9, t[8:16])  # one word higher: the upper half + 977 (words 9, 11, ...)
        r: list[Operand] = [even[0], *(block.new("r") for _ in range(9))]
        block.chain("add", [str(word) for word in r[1:9]], even[1:9], odd[0:8])
        block("addc.u32", str(r[9]), odd[8], 0)
        # What stands above 2^256, r[8] + r[9] 2^32 < 2^34, is folded again.
        low, high = block.wide(r[8], 977)
        second, middle, third = block.new("l"), block.new("l"), block.new("l")
        block("mad.lo.u32", second, r[9], 977, high)
        block("add.cc.u32", middle, second, r[8])
        block("addc.u32", third, r[9], 0)
        block.chain("add", out, r[:8], [low, middle, third, 0, 0, 0, 0, 0])
        block.catch("flag", "flag")

    def fold(self, block: Block, k: Register, limit: int, mask: Register | None) -> list[Operand]:  # noqa: ARG002
        """DELTA = 2^32 + 977."""
        low = block.new("l")
        block("mul.lo.u32", low, k, 977)
        return [low, k, 0, 0, 0, 0, 0, 0]
