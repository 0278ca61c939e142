"""Netlists of small gates, and abc, which maps them to functions of three inputs."""

from __future__ import annotations

import random
import re
import subprocess
import tempfile
from pathlib import Path

Netlist = list[tuple[str, tuple[str, ...], int]]  # (output, inputs, truth table: bit i is the value for input i)


class Gates:
    """A netlist that is being built."""

    def __init__(self) -> None:
        self.gates: Netlist = []

    def add(self, table: int, *inputs: str) -> str:
        """A gate; returns its output's name."""
        self.gates.append((name := f"t{len(self.gates)}", inputs, table))
        return name

    def sums(self, inputs: list[str], targets: list[int], rng: random.Random) -> list[str]:
        """Sums of inputs; target bit i means inputs[i]. Shares the most frequent pair first."""
        names = list(inputs)
        rows = [{i for i in range(len(inputs)) if t >> i & 1} for t in targets]
        while True:
            count: dict[tuple[int, int], int] = {}
            for row in rows:
                members = sorted(row)
                for i, a in enumerate(members):
                    for b in members[i + 1 :]:
                        count[a, b] = count.get((a, b), 0) + 1
            if not count:
                break
            most = max(count.values())
            a, b = rng.choice([pair for pair, n in count.items() if n == most])
            names.append(self.add(0b0110, names[a], names[b]))
            for row in rows:
                if a in row and b in row:
                    row -= {a, b}
                    row.add(len(names) - 1)
        return [names[next(iter(row))] for row in rows]


def to_blif(netlist: Netlist, inputs: int) -> str:
    """The netlist as BLIF."""
    lines = [".model sbox", ".inputs " + " ".join(f"x{i}" for i in range(inputs))]
    lines.append(".outputs " + " ".join(name for name, _, _ in netlist if name.startswith("y")))
    for name, fan_in, table in netlist:
        lines.append(".names " + " ".join(fan_in) + " " + name)
        for i in range(1 << len(fan_in)):
            if table >> i & 1:
                lines.append("".join(str(i >> k & 1) for k in range(len(fan_in))) + " 1")
    return "\n".join([*lines, ".end", ""])


def from_blif(text: str, inputs: int) -> Netlist:
    """BLIF as a netlist in an order in which every input comes before its use."""
    text = text.replace("\\\n", " ")
    found: dict[str, tuple[tuple[str, ...], int]] = {}
    for block in re.split(r"^\.names ", text, flags=re.M)[1:]:
        head, *rows = block.splitlines()
        *fan_in, name = head.split()
        table, on = 0, True
        for row in rows:
            if row.startswith(".") or not row.strip():
                break
            pattern, _, value = row.rpartition(" ")
            on = value == "1"
            for i in range(1 << len(fan_in)):
                if all(c == "-" or int(c) == (i >> k & 1) for k, c in enumerate(pattern.strip())):
                    table |= 1 << i
        if not on:
            table = ~table & (1 << (1 << len(fan_in))) - 1
        found[name] = (tuple(fan_in), table)
    order: Netlist = []
    done = {f"x{i}" for i in range(inputs)}

    def visit(name: str) -> None:
        if name not in done:
            for n in found[name][0]:
                visit(n)
            done.add(name)
            order.append((name, *found[name]))

    for name in sorted(found, key=lambda name: (name[0], int(name[1:]) if name[1:].isdigit() else 0)):
        if name.startswith("y"):
            visit(name)
    return order


def mapped(netlist: Netlist, script: str, inputs: int = 8) -> Netlist:
    """The netlist through abc."""
    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder, "in.blif"), Path(folder, "out.blif")
        source.write_text(to_blif(netlist, inputs))
        command = f"read_blif {source}; {script}; write_blif {target}"
        subprocess.run(["berkeley-abc", "-q", command], check=True, capture_output=True, cwd=folder)
        return from_blif(target.read_text(), inputs)


SCRIPTS = (
    "strash; dch; if -K 3 -a; mfs2 -a -e",
    "strash; ifraig; dc2; dch -f; if -K 3 -a; mfs2 -a -e; strash; dch; if -K 3 -a; mfs2 -a -e",
    "strash; if -K 3 -a; mfs2 -a -e -L 20; strash; dch -S 50; if -K 3 -a; mfs2 -a -e -L 20",
    "strash; dch; if -K 6 -a; mfs2 -a -e; strash; dch; if -K 3 -a; mfs2 -a -e; strash; dch; if -K 3 -a; mfs2 -a -e",
)


def size(netlist: Netlist) -> int:
    """Functions of two or three inputs, and inverters."""
    return sum(1 for _, inputs, _ in netlist if inputs)


def statements(netlist: Netlist, names: dict[str, str]) -> list[str]:
    """The gates as C++; adds their names to `names`."""
    lines = []
    for i, (gate, inputs, table) in enumerate(netlist):
        full = table
        for k in range(len(inputs), 3):
            full |= full << (1 << k)
        names[gate] = f"t{i}"
        a, b, c = ([names[n] for n in inputs] + [names["x0"]] * 3)[:3]
        # The first argument of lut is the highest bit of its index.
        index = sum(((full >> ((j >> 2) | (j >> 1 & 1) << 1 | (j & 1) << 2)) & 1) << j for j in range(8))
        lines.append(f"    const Word t{i} = lut<{index:#04x}>({a}, {b}, {c});")
    return lines
