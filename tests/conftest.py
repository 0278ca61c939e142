"""What holds for every test."""

from __future__ import annotations

import os

# Daemons of tests leave the machine's own admin socket alone; those that need one name it.
os.environ.setdefault("VERIFIER_ADMIN__LISTEN", "[]")

# What plugins answer matters here, not how fast: the compilers are done in a third of the time.
os.environ.setdefault("CXXFLAGS", "-O1")
