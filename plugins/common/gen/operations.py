"""The blocks of a field: products, and the linear combinations that the point formulas use."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from primes import Prime
from product import product, square
from ptx import A, B, Block, C, Operand, R, Register, words

__all__ = ["Operation", "operations"]


@dataclass(frozen=True)
class Operation:
    """A block, and what it must compute modulo p from its arrays (and the mask)."""

    block: Block
    value: Callable[..., int]
    inexact: bool  # may raise the flag


def operations(prime: Prime) -> list[Operation]:
    """All operations of the field of `prime`."""
    radix = "" if prime.radix == 1 else f" / 2^{prime.radix.bit_length() - 1}"
    inverse = pow(prime.radix, -1, prime.p)
    flag = "" if prime.exact_product else "flag"
    made: list[Operation] = []

    def block(name: str, arrays: str, comment: str, value: Callable[..., int], **options: bool | str) -> Block:
        settings = {"flag": "flag", "zero": prime.zero} | options
        new = Block(name, arrays, comment, **settings)  # type: ignore[arg-type]
        made.append(Operation(new, value, bool(settings["flag"])))
        return new

    b = block("mul", "ab", f"r = a b{radix}", lambda x, y: x * y * inverse, flag=flag)
    prime.reduce(b, product(b, A, B, swap=prime.swap), R)
    b = block("sqr", "a", f"r = a^2{radix}", lambda x: x * x * inverse, flag=flag)
    prime.reduce(b, square(b, A, swap=prime.swap), R)

    b = block("add", "ab", "r = a + b", lambda x, y: x + y)
    _fold_up(prime, b, *_plus(b, A, B), 1)
    b = block("twice", "a", "r = 2 a", lambda x: 2 * x)
    _fold_up(prime, b, *_twice(b, A), 1)
    b = block("triple", "a", "r = 3 a", lambda x: 3 * x)
    _fold_up(prime, b, *_thrice(b, A), 2)
    b = block("triple_add", "ab", "r = 3 a + b", lambda x, y: 3 * x + y)
    r, k = _thrice(b, A)
    _fold_up(prime, b, *_plus(b, r, B, k), 3)

    b = block("sub", "ab", "r = a - b", lambda x, y: x - y)
    _fold_down(prime, b, *_minus(b, A, B), 1)
    b = block("sub_twice", "ab", "r = a - 2 b", lambda x, y: x - 2 * y)
    r, k = _twice(b, B)
    _fold_down(prime, b, *_minus(b, A, r, k), 2)
    b = block("sub_sub", "abc", "r = a - b - c", lambda x, y, z: x - y - z)
    r, k, _ = _minus(b, A, B)
    _fold_down(prime, b, *_minus(b, r, C, k), 2)
    b = block("sub_sub_twice", "abc", "r = a - b - 2 c", lambda x, y, z: x - y - 2 * z)
    r, k = _twice(b, C)
    r, k, _ = _minus(b, A, r, k)
    _fold_down(prime, b, *_minus(b, r, B, k), 3)

    half = pow(2, -1, prime.p)
    b = block("half", "a", "r = a / 2", lambda x: x * half, flag="", zero=False)
    _half(prime, b)
    b = block("negate_if", "a", "r = mask ? -a : a, mask being all ones or zero", lambda x, mask: -x if mask else x,
              mask=True, zero=False)  # fmt: skip
    _negate_if(prime, b)
    return made


def _thrice(block: Block, x: Sequence[Register]) -> tuple[list[Register], Register]:
    """3 x as eight words and the rest above 2^256."""
    r, k = _twice(block, x)
    return _plus(block, r, x, k)


def _plus(
    block: Block, x: Sequence[Operand], y: Sequence[Operand], k: Operand = 0
) -> tuple[list[Register], Register]:
    """x + y as eight words and the rest above 2^256, added to k."""
    r = [block.new("s") for _ in range(8)]
    block.chain("add", r, x, y)
    above = block.new("k")
    block.catch(above, k)
    return r, above


def _minus(
    block: Block, x: Sequence[Operand], y: Sequence[Operand], k: Operand | None = None
) -> tuple[list[Register], Register, Register]:
    """x - y as eight words, k + the borrow, and minus the borrow."""
    r = [block.new("s") for _ in range(8)]
    block.chain("sub", r, x, y)
    mask, below = block.new("k"), block.new("k")
    block("subc.u32", mask, 0, 0)
    if k is None:
        block("neg.s32", below, mask)
    else:
        block("sub.u32", below, k, mask)
    return r, below, mask


def _twice(block: Block, x: Sequence[Register]) -> tuple[list[Register], Register]:
    """2 x as eight words and its top bit."""
    if block.zero:
        return _plus(block, x, x)
    r = [block.new("s") for _ in range(8)]
    for i in range(7, 0, -1):
        block("shf.l.wrap.b32", r[i], x[i - 1], x[i], 1)
    block("shl.b32", r[0], x[0], 1)
    above = block.new("k")
    block("shr.u32", above, x[7], 31)
    return r, above


def _fold_up(prime: Prime, block: Block, r: Sequence[Operand], k: Register, limit: int) -> None:
    block.chain("add", R, r, prime.fold(block, k, limit, None))
    block.catch("flag", "flag")


def _fold_down(prime: Prime, block: Block, r: Sequence[Operand], k: Register, mask: Register, limit: int) -> None:
    block.chain("sub", R, r, prime.fold(block, k, limit, mask if limit == 1 else None))
    block("subc.u32", "flag", "flag", 0)


def _half(prime: Prime, block: Block) -> None:
    """(a + p) / 2 where a is odd."""
    bit, mask = block.new("k"), block.new("k")
    block("and.b32", bit, A[0], 1)
    block("neg.s32", mask, bit)
    r = [block.new("s") for _ in range(9)]
    block.chain("add", r[:8], A, prime.modulus(block, bit, mask, 0))
    block("addc.u32", r[8], 0, 0)
    for i in range(8):
        block("shf.r.wrap.b32", R[i], r[i], r[i + 1], 1)


def _negate_if(prime: Prime, block: Block) -> None:
    """p - a = ~a + (p + 1) mod 2^256, which carries unless a > p: then the flag is raised."""
    bit = block.new("k") if 1 in words(prime.p + 1) else ""
    if bit:
        block("and.b32", bit, "mask", 1)
    addend = prime.modulus(block, bit, "mask", 1)
    first = next(i for i, word in enumerate(addend) if word != 0)
    inverted = R[:first] + [block.new("x") for _ in range(8 - first)]
    for i in range(8):
        block("xor.b32", inverted[i], A[i], "mask")
    block.chain("add", R[first:], inverted[first:], addend[first:])
    wrong = block.new("k")
    block("addc.u32", wrong, "mask", 0)
    block("or.b32", "flag", "flag", wrong)
