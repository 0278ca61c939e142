"""What is told of a process is what it does."""

from __future__ import annotations

import mmap
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from _waiting import until

from verifier.bench.processes import children, cpu_s, open_files, private_bytes, proportional_bytes, tree

MIB = 1 << 20
PARENT = """
import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", "input()", "grandchild"], stdin=subprocess.PIPE)
print(child.pid, flush=True)
input()
child.communicate()
"""


@pytest.fixture
def family():
    """A child of this process, and its child."""
    with subprocess.Popen(
        [sys.executable, "-c", PARENT, "child"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        yield child.pid, int(child.stdout.readline())
        child.stdin.close()


def test_children_and_their_children_are_found(family):
    child, grandchild = family
    assert child in children(os.getpid())
    assert children(child) == [grandchild]
    until(lambda: children(child, "grandchild") == [grandchild])  # its program is another one for a moment
    assert children(child, "another") == []
    assert tree(child) == [child, grandchild]
    assert {child, grandchild} < set(tree(os.getpid()))


def test_processor_time_goes_on_with_work():
    before = cpu_s(os.getpid())
    end = time.process_time() + 0.1
    while time.process_time() < end:
        pass
    assert cpu_s(os.getpid()) > before


def test_memory_is_counted_when_it_is_used():
    private, proportional = private_bytes(os.getpid()), proportional_bytes(os.getpid())
    with mmap.mmap(-1, 64 * MIB, flags=mmap.MAP_PRIVATE) as memory:
        memory[:: mmap.PAGESIZE] = b"x" * (64 * MIB // mmap.PAGESIZE)
        assert private_bytes(os.getpid()) - private > 48 * MIB
        assert proportional_bytes(os.getpid()) - proportional > 48 * MIB


def test_open_files_are_counted():
    before = open_files(os.getpid())
    with Path(__file__).open():
        assert open_files(os.getpid()) == before + 1


def test_what_has_ended_is_an_error_or_left_out():
    ended = 1 << 30
    for ask in (cpu_s, private_bytes, proportional_bytes, open_files, children):
        with pytest.raises(OSError, match=str(ended)):
            ask(ended)
    assert tree(ended) == [ended]
