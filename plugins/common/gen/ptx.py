"""Straight-line PTX blocks on 32-bit words: built once, emitted as inline PTX and as C, and interpreted.

A block is a list of instructions (operation, operands). The first operand is the destination; an operand is a
register's name or a number. Only what field arithmetic needs is known: additions and multiply-adds with the carry
flag, shifts and logic.

PTX leaves open whether the flag holds a borrow or its complement after a subtraction. Blocks must not depend on it:
`run` is given the convention, and the checks use both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

__all__ = ["A", "B", "Block", "C", "R", "Register", "integer", "words"]

Register = str
Operand = Register | int
MASK = 0xFFFFFFFF

A = [f"a{i}" for i in range(8)]
B = [f"b{i}" for i in range(8)]
C = [f"c{i}" for i in range(8)]
R = [f"r{i}" for i in range(8)]


def words(value: int) -> list[int]:
    """A 256-bit integer as eight words, least significant first."""
    return [value >> (32 * i) & MASK for i in range(8)]


def integer(values: Iterable[int]) -> int:
    """The inverse of `words`, for any number of words."""
    return sum(value << (32 * i) for i, value in enumerate(values))


class Block:
    """One operation of a field.

    `arrays` are its inputs of eight words, a subset of "abc"; `flag` the counter that it raises when its lazy result
    may be wrong; `mask` tells that it takes a mask; `zero` that it takes a register that holds zero, unknown to the
    compiler: a carry caught by `madc.lo z, z` runs on the multiplier's pipe, one caught by `addc` on the busier
    pipe of the additions.
    """

    def __init__(
        self, name: str, arrays: str, comment: str, *, flag: str = "", mask: bool = False, zero: bool = False
    ) -> None:
        self.name, self.arrays, self.comment = name, arrays, comment
        self.flag, self.mask, self.zero = flag, mask, zero
        self.code: list[tuple[str, tuple[Operand, ...]]] = []
        self.registers: list[Register] = []
        self.pairs: list[Register] = []

    def __call__(self, operation: str, *operands: Operand) -> None:
        """Appends an instruction."""
        self.code.append((operation, operands))

    def new(self, prefix: str = "t") -> Register:
        """A fresh 32-bit register."""
        self.registers.append(f"{prefix}{len(self.registers) + len(self.pairs) + 1}")
        return self.registers[-1]

    def wide(self, x: Operand, y: Operand) -> tuple[Register, Register]:
        """The 64-bit product of two words, as (low, high)."""
        pair = f"q{len(self.registers) + len(self.pairs) + 1}"
        self.pairs.append(pair)
        self("mul.wide.u32", pair, x, y)
        low, high = self.new("w"), self.new("w")
        self("unpack", low, high, pair)
        return low, high

    def chain(self, kind: str, destinations: Sequence[Register], x: Sequence[Operand], y: Sequence[Operand]) -> None:
        """d = x + y (or x - y) over several words; the last word's carry stays in the flag."""
        for i, (d, p, q) in enumerate(zip(destinations, x, y, strict=True)):
            self(f"{kind}{'c' if i else ''}.cc.u32", d, p, q)

    def catch(self, destination: Register, plus: Operand = 0) -> None:
        """destination = plus + the carry in the flag."""
        if self.zero:
            self("madc.lo.u32", destination, "z", "z", plus)
        else:
            self("addc.u32", destination, plus, 0)

    # ---- emission

    @property
    def inputs(self) -> list[Register]:
        """All input registers, in the order of the function's parameters."""
        inputs = [register for array, names in zip("abc", (A, B, C), strict=True) if array in self.arrays
                  for register in names]  # fmt: skip
        return inputs + ["mask"] * self.mask + ["z"] * self.zero

    def function(self) -> str:
        """The block as a C++ function with both bodies. All blocks take a flag and the zero, used or not."""
        parameters = ["u32 (&r)[8]", *(f"const u32 (&{array})[8]" for array in self.arrays)]
        parameters += ["u32 mask"] * self.mask + ["u32& flag", "u32 z"]
        return (
            f"    // {self.comment}\n    BLOCK void {self.name}({', '.join(parameters)}) {{\n"
            f"#if INLINE_PTX\n{self._assembly()}#else\n{self._portable()}#endif\n    }}\n"
        )

    def _place(self, register: Register) -> str:
        return f"{register[0]}[{register[1]}]" if register in (*A, *B, *C, *R) else register

    def _assembly(self) -> str:
        outputs = [*R, *(["flag"] if self.flag else [])]
        operands = {register: f"%{i}" for i, register in enumerate([*outputs, *self.inputs])}

        def show(operand: Operand) -> str:
            if isinstance(operand, int):
                return hex(operand) if operand > 9 else str(operand)
            return operands.get(operand, operand)

        lines = _wrap(".reg .u32 ", self.registers) + _wrap(".reg .u64 ", self.pairs)
        for operation, arguments in self.code:
            shown = [show(argument) for argument in arguments]
            if operation == "unpack":
                lines.append(f"mov.b64 {{{shown[0]}, {shown[1]}}}, {shown[2]};")
            else:
                lines.append(f"{operation} {', '.join(shown)};")
        body = "".join(f'            "{line}\\n\\t"\n' for line in lines)
        written = [*(f'"=&r"({self._place(r)})' for r in R), *(['"+r"(flag)'] if self.flag else [])]
        read = [f'"r"({self._place(register)})' for register in self.inputs]
        constraints = f"            : {_lines(written)}\n            : {_lines(read)}"
        return f'        asm("{{\\n\\t"\n{body}            "}}"\n{constraints});\n'

    def _portable(self) -> str:
        def show(operand: Operand) -> str:
            return f"{operand:#x}u" if isinstance(operand, int) else self._place(operand)

        read = {operand for _, (_, *rest) in self.code for operand in rest}
        lines = ["Ptx ptx;", *_wrap("u32 ", [r for r in self.registers if r in read]), *_wrap("u64 ", self.pairs)]
        for operation, (first, *rest) in self.code:
            shown = [show(argument) for argument in rest]
            if operation == "unpack":
                lines.append(f"{show(first)} = (u32){shown[1]}, {shown[0]} = (u32)({shown[1]} >> 32);")
            else:
                method = operation.rsplit(".", 1)[0].replace(".", "_")
                method += "_" if method in ("and", "or", "xor") else ""  # keywords of C++
                kept = first in read or first in R or first == "flag"
                lines.append(f"{f'{show(first)} = ' if kept else ''}ptx.{method}({', '.join(shown)});")
        return "".join(f"        {line}\n" for line in lines)

    # ---- interpretation

    def run(self, values: Mapping[Register, int], *, borrow_flag: bool = False) -> dict[Register, int]:
        """Executes the block. `borrow_flag`: subtractions leave the borrow in the flag, not its complement."""
        state = dict(values)
        carry: int | None = None

        def read(operand: Operand) -> int:
            return operand if isinstance(operand, int) else state[operand]

        for operation, (first, *rest) in self.code:
            destination = str(first)
            if operation == "unpack":
                pair = read(rest[1])
                state[destination], state[str(rest[0])] = pair & MASK, pair >> 32
                continue
            name, *modifiers = operation.split(".")
            x = [read(operand) for operand in rest]
            if operation == "mul.wide.u32":
                state[destination] = x[0] * x[1]
                continue
            if operation in _PLAIN:
                state[destination] = _PLAIN[operation](*x) & MASK
                continue
            incoming = 0
            if name in ("addc", "subc", "madc"):
                assert carry is not None, f"{self.name}: {operation} before any carry"
                incoming = carry
            if name in ("sub", "subc"):
                borrow = 0 if name == "sub" else incoming if borrow_flag else 1 - incoming
                result = x[0] - x[1] - borrow
                outgoing = int(result < 0) if borrow_flag else int(result >= 0)
            elif name in ("add", "addc"):
                result = x[0] + x[1] + incoming
                outgoing = result >> 32
            elif name in ("mad", "madc"):
                product = x[0] * x[1]
                result = (product & MASK if "lo" in modifiers else product >> 32) + x[2] + incoming
                outgoing = result >> 32
            else:
                raise ValueError(f"{self.name}: unknown operation {operation}")
            state[destination] = result & MASK
            if "cc" in modifiers:
                carry = outgoing
        return state


_PLAIN: dict[str, Callable[..., int]] = {
    "mul.lo.u32": lambda x, y: x * y,
    "mov.u32": lambda x: x,
    "and.b32": lambda x, y: x & y,
    "xor.b32": lambda x, y: x ^ y,
    "or.b32": lambda x, y: x | y,
    "neg.s32": lambda x: -x,
    "shl.b32": lambda x, y: x << y,
    "shr.u32": lambda x, y: x >> y,
    "shf.l.wrap.b32": lambda low, high, bits: (high << 32 | low) << bits >> 32,
    "shf.r.wrap.b32": lambda low, high, bits: (high << 32 | low) >> bits,
}
# Operations with and without carry share a name up to their modifiers.
_PLAIN |= {"sub.u32": lambda x, y: x - y, "add.u32": lambda x, y: x + y, "mad.lo.u32": lambda x, y, z: x * y + z}


def _wrap(head: str, names: Sequence[str]) -> list[str]:
    """Declarations of at most 12 names a line."""
    return [head + ", ".join(names[i : i + 12]) + ";" for i in range(0, len(names), 12)]


def _lines(operands: Sequence[str]) -> str:
    """Eight operands a line."""
    return ",\n              ".join(", ".join(operands[i : i + 8]) for i in range(0, len(operands), 8))
