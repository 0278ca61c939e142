"""A file that appears whole or not at all, also where the file system knows no nameless files."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from verifier.cli._cipher_names import CipherFileError
from verifier.cli._cipher_output import FileOutput, StandardOutput


@pytest.fixture(params=["nameless", "temporary"])
def way(request, monkeypatch):
    if request.param == "temporary":
        real = os.open

        def without(path, flags, *rest, **more):
            if flags & os.O_TMPFILE == os.O_TMPFILE:
                raise OSError(errno.EOPNOTSUPP, "Operation not supported")
            return real(path, flags, *rest, **more)

        monkeypatch.setattr(os, "open", without)
    return request.param


def names(folder):
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize("there_before", [False, True])
def test_it_appears_when_it_is_whole(way, tmp_path, there_before):
    path = tmp_path / "out"
    if there_before:
        path.write_bytes(b"old")
    with FileOutput(path, replace=there_before, mode=0o640) as output:
        output.write(b"new ")
        output.write(b"text")
        assert [path.read_bytes() for path in tmp_path.glob("out")] == ([b"old"] if there_before else [])
        output.commit()
    assert path.read_bytes() == b"new text"
    assert path.stat().st_mode & 0o777 == 0o640
    assert names(tmp_path) == ["out"]


def test_nothing_is_left_where_it_is_given_up(way, tmp_path):
    def give_up() -> None:
        with FileOutput(tmp_path / "out", replace=False, mode=0o600) as output:
            output.write(b"half")
            assert len(names(tmp_path)) == (way == "temporary")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        give_up()
    assert names(tmp_path) == []


def test_a_file_that_came_meanwhile_is_not_replaced(way, tmp_path):
    def write() -> None:
        with FileOutput(tmp_path / "out", replace=False, mode=0o600) as output:
            (tmp_path / "out").write_bytes(b"another's")
            output.commit()

    with pytest.raises(CipherFileError, match=r"out: .*--force replaces it"):
        write()
    assert (tmp_path / "out").read_bytes() == b"another's"
    assert names(tmp_path) == ["out"]


def test_a_folder_that_is_gone(way, tmp_path):
    with pytest.raises(FileNotFoundError):
        FileOutput(tmp_path / "none" / "out", replace=False, mode=0o600)


def test_a_terminal_is_not_written_to(monkeypatch):
    monkeypatch.setattr(os, "isatty", lambda _: True)
    with Path(os.devnull).open("w") as nothing:
        monkeypatch.setattr("sys.stdout", nothing)
        with pytest.raises(CipherFileError, match="standard output is a terminal"):
            StandardOutput()
