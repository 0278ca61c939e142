"""What holds for every test."""

from __future__ import annotations

import os

import _builds  # noqa: F401  its folder is this process's, and found by those that it starts
import pytest
from hypothesis import settings

from verifier import cores, reader

# Daemons of tests leave the machine's own admin socket alone; those that need one name it.
os.environ.setdefault("VERIFIER_ADMIN__LISTEN", "[]")

# Nor do they have a status page, but for those that name its address.
os.environ.setdefault("VERIFIER_STATUS__LISTEN", "")

# One process on any machine; those about front ends ask for them. Counters of front ends come a second late.
os.environ.setdefault("VERIFIER_SERVER__PROCESSES", "1")

# What plugins answer matters here, not how fast: the compilers are done in a third of the time.
os.environ.setdefault("CXXFLAGS", "-O1")

# A machine that does other things besides is no failure; what failed can be repeated from what is printed.
settings.register_profile("verifier", deadline=None, print_blob=True)
settings.load_profile("verifier")


# Files that take minutes by themselves begin first, so that none of them is what the others end up waiting for.
FIRST = ("test_plugin_builds.py",)


def pytest_collection_modifyitems(items):
    items.sort(key=lambda item: item.path.name not in FIRST)


@pytest.fixture
def callers_read(monkeypatch):
    """Whoever waits for the only answer due reads it, on any machine and for as long as it takes."""
    monkeypatch.setattr(cores, "SPARE_CORES", 1)
    monkeypatch.setattr(reader, "_LOOKED_S", 60.0)


def pytest_terminal_summary(terminalreporter):
    """Registers and spills of every kernel that was built, whichever process built it."""
    passed = terminalreporter.stats.get("passed", [])
    kernels = sorted(value for report in passed for name, value in report.user_properties if name == "kernel")
    if kernels:
        terminalreporter.section("kernels: registers, bytes spilled")
        for line in kernels:
            terminalreporter.write_line(line)
