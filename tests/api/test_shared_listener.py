"""What memory of a client must be before the daemon reads it."""

from __future__ import annotations

import fcntl
import os

import pytest

from verifier.api._shared_listener import check_memory
from verifier.errors import DeniedError, RequestError

SIZE = 1 << 16


@pytest.fixture
def memory():
    fd = os.memfd_create("test", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(fd, SIZE)
    yield fd
    os.close(fd)


def seal(fd: int) -> None:
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK)


@pytest.mark.parametrize("nbytes", [1, SIZE])
def test_sealed_memory_is_taken(memory, nbytes):
    seal(memory)
    check_memory(memory, nbytes, os.getuid())


@pytest.mark.parametrize("nbytes", [0, SIZE + 1])
def test_more_than_there_is_is_refused(memory, nbytes):
    seal(memory)
    with pytest.raises(RequestError, match=f"register_bytes: {nbytes}, but the memory has {SIZE} bytes"):
        check_memory(memory, nbytes, os.getuid())


def test_memory_that_can_become_smaller_is_refused(memory):
    with pytest.raises(RequestError, match="F_SEAL_SHRINK"):
        check_memory(memory, SIZE, os.getuid())


def test_memory_of_another_user_is_refused(memory):
    seal(memory)
    with pytest.raises(DeniedError):
        check_memory(memory, SIZE, os.getuid() + 1)


def test_memory_that_is_made_smaller_and_sealed_in_the_middle_of_the_check_is_refused(memory, monkeypatch):
    real = fcntl.fcntl

    def slower_than_the_client(fd: int, command: int, *argument: int) -> int:
        if command == fcntl.F_GET_SEALS:
            os.ftruncate(memory, 4096)
            seal(memory)
        return real(fd, command, *argument)

    monkeypatch.setattr(fcntl, "fcntl", slower_than_the_client)
    with pytest.raises(RequestError, match="the memory has 4096 bytes"):
        check_memory(memory, SIZE, os.getuid())
