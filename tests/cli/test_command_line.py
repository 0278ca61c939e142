"""What holds for every command: an example in its help, a version, messages that are printed as they are."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer.main import get_command

from verifier import __version__, cli
from verifier.cli._console import complain
from verifier.folders import cache_folder, state_folder


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "verifier", *arguments],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


def leaves(command, words):
    for name, child in getattr(command, "commands", {}).items():
        yield from leaves(child, [*words, name])
    if not hasattr(command, "commands"):
        yield " ".join(words), f"{command.help} {command.epilog}"


def test_every_command_has_an_example():
    cli._register()
    found = dict(leaves(get_command(cli.app), ["verifier"]))
    assert len(found) > 30
    assert [name for name, text in found.items() if f"{name} " not in text.partition("Example")[2] + " "] == []


def test_the_version():
    done = run("--version")
    assert (done.returncode, done.stdout) == (0, f"verifier {__version__}\n")


def test_a_message_is_printed_as_it_is(capsys):
    complain("pip install verifier[compiler], or read [red]this")
    assert capsys.readouterr().err == "error: pip install verifier[compiler], or read [red]this\n"
    complain(FileNotFoundError(2, "No such file or directory", "a[b]"), "cannot be read")
    assert capsys.readouterr().err == "cannot be read: a[b]: No such file or directory\n"


def test_a_terminal_that_is_not_utf_8(tmp_path):
    done = run("demo", "--help", PYTHONIOENCODING="ascii")
    assert (done.returncode, done.stderr) == (0, "")


def test_a_user_without_a_home(monkeypatch):
    def homeless():
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", homeless)
    monkeypatch.setattr(os, "geteuid", lambda: 12345)
    for name in ("XDG_CACHE_HOME", "XDG_RUNTIME_DIR"):
        monkeypatch.delenv(name, raising=False)
    assert cache_folder() == Path("/.cache/verifier")
    assert state_folder() == Path("/.local/state/verifier")


@pytest.mark.parametrize("command", [["demo", "--blocks", "1"], ["chain", "storm", "--seeds", "1"]])
def test_a_cache_that_cannot_be_made_is_named(command, tmp_path):
    (tmp_path / "file").write_text("")
    done = run(*command, XDG_CACHE_HOME=str(tmp_path / "file"))
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert f"error: image cache {tmp_path}/file/verifier/images: Not a directory; XDG_CACHE_HOME, or" in done.stderr
