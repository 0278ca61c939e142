"""How tests build what does eight items at a time: with AVX-512 IFMA where this CPU has it, and without."""

from __future__ import annotations

from verifier.drivers.build import host_target, missing_cpu_flags

HERE = host_target() == "x86-64-v4" and not missing_cpu_flags(["avx512ifma"])
LANE_FLAGS = {"portable": ("-DLANES_PORTABLE",), **({"ifma": ("-march=x86-64-v4",)} if HERE else {})}
# The quicker of them.
LANES = LANE_FLAGS["ifma" if HERE else "portable"]
