"""256 x 256-bit products as PTX.

`mad.lo.cc` and `madc.hi.cc` of one product fuse into a single wide multiply-add when their results sit in an aligned
pair of registers. So products x[i] y[j] with i + j even go to one accumulator and those with i + j odd to another
one, each a run of carry chains over aligned pairs; the two are added once at the end.
"""

from __future__ import annotations

from collections.abc import Sequence

from ptx import Block, Operand, Register

__all__ = ["product", "square"]

Accumulator = dict[int, Operand]
Term = tuple[int, Register, Register]  # position of the low word, and the factors


def _add_terms(block: Block, sums: Accumulator, terms: Sequence[Term], *, may_carry: bool) -> None:
    """One carry chain: terms at positions two apart. Words not there yet are zero."""
    for k, (position, x, y) in enumerate(terms):
        last = k == len(terms) - 1
        low, high = block.new("w"), block.new("w")
        block("mad.lo.cc.u32" if k == 0 else "madc.lo.cc.u32", low, x, y, sums.get(position, 0))
        block("madc.hi.u32" if last and not may_carry else "madc.hi.cc.u32", high, x, y, sums.get(position + 1, 0))
        sums[position], sums[position + 1] = low, high
    if may_carry:
        above = terms[-1][0] + 2
        assert above not in sums
        caught = block.new("k")
        block.catch(caught)
        sums[above] = caught


def _set_terms(block: Block, sums: Accumulator, terms: Sequence[Term]) -> None:
    """Terms at positions where nothing stands yet."""
    for position, x, y in terms:
        sums[position], sums[position + 1] = block.wide(x, y)


def product(block: Block, x: Sequence[Register], y: Sequence[Register], *, swap: bool = False) -> list[Operand]:
    """The 16 words of x y. `swap` writes the factors of each multiplication in the other order."""

    def terms(row: int, start: int) -> list[Term]:
        pairs = [(row + j, x[j], y[row]) for j in range(start, 8, 2)]
        return [(position, q, p) for position, p, q in pairs] if swap else pairs

    even: Accumulator = {}
    odd: Accumulator = {}
    for row in range(0, 8, 2):
        if row == 0:
            _set_terms(block, even, terms(0, 0))
            _set_terms(block, odd, terms(0, 1))
        else:
            _add_terms(block, even, terms(row, 0), may_carry=True)
            _add_terms(block, odd, terms(row, 1), may_carry=False)
        _add_terms(block, odd, terms(row + 1, 0), may_carry=True)
        _add_terms(block, even, terms(row + 1, 1), may_carry=False)
    result: list[Operand] = [even[0]]
    for i in range(1, 16):
        word = block.new("t")
        block("add.cc.u32" if i == 1 else "addc.cc.u32" if i < 15 else "addc.u32", word, even[i], odd[i])
        result.append(word)
    return result


def square(block: Block, x: Sequence[Register], *, swap: bool = False) -> list[Operand]:
    """The 16 words of x^2: the products of different words once, doubled, and the squares of the words."""
    even: Accumulator = {}
    odd: Accumulator = {}
    for i in range(7):
        for sums, start in ((even, i + 2), (odd, i + 1)):
            terms = [(i + j, x[j], x[i]) if swap else (i + j, x[i], x[j]) for j in range(start, 8, 2)]
            if not terms:
                continue
            if all(position not in sums for position, _, _ in terms):
                _set_terms(block, sums, terms)
            else:
                _add_terms(block, sums, terms, may_carry=terms[-1][0] + 1 in sums)
    cross: list[Operand] = [0, odd[1]]
    for i in range(2, 15):
        word = block.new("x")
        block("add.cc.u32" if i == 2 else "addc.cc.u32", word, even.get(i, 0), odd.get(i, 0))
        cross.append(word)
    cross.append(block.new("x"))
    block.catch(str(cross[15]))

    doubled: list[Operand] = [0] * 16
    for i in range(15, 1, -1):
        doubled[i] = block.new("d")
        block("shf.l.wrap.b32", doubled[i], cross[i - 1], cross[i], 1)
    doubled[1] = block.new("d")
    block("shl.b32", doubled[1], cross[1], 1)

    low, high = block.wide(x[0], x[0])
    result: list[Operand] = [low, block.new("t")]
    block("add.cc.u32", result[1], high, doubled[1])
    for i in range(1, 8):
        result += [block.new("t"), block.new("t")]
        block("madc.lo.cc.u32", result[2 * i], x[i], x[i], doubled[2 * i])
        block("madc.hi.cc.u32" if i < 7 else "madc.hi.u32", result[2 * i + 1], x[i], x[i], doubled[2 * i + 1])
    return result
