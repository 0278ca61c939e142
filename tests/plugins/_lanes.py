"""How tests build what does eight items at a time: with AVX-512 IFMA where this CPU has it, and without."""

from __future__ import annotations

from collections.abc import Mapping

from verifier.drivers.build import host_target, missing_cpu_flags

HERE = host_target() == "x86-64-v4" and not missing_cpu_flags(["avx512ifma"])
# With -O1 the portable lanes take g++ six times as long, and run no faster.
PORTABLE = "-Og"
LANE_FLAGS = {"portable": (PORTABLE, "-DLANES_PORTABLE"), **({"ifma": ("-O1", "-march=x86-64-v4")} if HERE else {})}
# The quicker of them.
LANES = LANE_FLAGS["ifma" if HERE else "portable"]

# Macros of a daemon's build. The default one goes item by item where the CPU lacks the instructions.
ONE_BY_ONE: Mapping[str, int] = {"ITEM_LANES": 1} if HERE else {}
EIGHT: Mapping[str, int] = {} if HERE else {"LANES_PORTABLE": 1}
