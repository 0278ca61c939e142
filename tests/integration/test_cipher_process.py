"""`verifier cipher` in a process of its own: pipes, signals, a full disk, memory; nothing half-written is left."""

from __future__ import annotations

import os
import random
import signal
import subprocess
from pathlib import Path

import pytest
from _cipher_command import command, command_after, files
from _daemon_process import ROOT
from _waiting import until

SEED = 7


def test_pipes(cipher_daemon, tmp_path, key):
    data = random.Random(SEED).randbytes(3_000_000)
    options = ["-a", "aes-gcm", "-k", key, "--target", cipher_daemon.address]
    secret = subprocess.run(
        command("encrypt", *options, "-", "-"), input=data, capture_output=True, check=True, cwd=ROOT
    ).stdout
    (tmp_path / "secret").write_bytes(b"read already" + secret)
    with (tmp_path / "secret").open("rb", buffering=0) as file:
        assert file.read(12) == b"read already"
        back = subprocess.run(
            command("decrypt", *options, "-", "-"), stdin=file, capture_output=True, check=True, cwd=ROOT
        ).stdout
    assert back == data
    piped = subprocess.run(command("decrypt", *options, "-", "-"), input=secret, capture_output=True, cwd=ROOT)
    assert piped.returncode == 2
    assert b"not a file that can be read twice" in piped.stderr
    assert piped.stdout == b""


def test_a_reader_that_goes_away(cipher_daemon, tmp_path, key):
    (tmp_path / "plain").write_bytes(bytes(8 << 20))
    options = ["-a", "aes-ctr", "-k", key, "--target", cipher_daemon.address]
    with subprocess.Popen(
        command("encrypt", *options, tmp_path / "plain", "-"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=ROOT,
    ) as process:
        process.stdout.read(1000)
        process.stdout.close()
        assert b"who read the output has gone" in process.stderr.read()
        assert process.wait(60) == 2
    assert files(tmp_path) == {"key", "plain"}


def test_a_full_disk(cipher_daemon, tmp_path, key):
    """A limit on the size of files is to write(2) what a full disk is: it fails in the middle."""
    (tmp_path / "plain").write_bytes(bytes(4 << 20))
    (tmp_path / "secret").write_bytes(b"old")
    options = ["-a", "aes-ctr", "-k", key, "--target", cipher_daemon.address, "--force"]
    done = subprocess.run(
        command_after(
            "resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))",
            *("encrypt", *options, tmp_path / "plain", tmp_path / "secret"),
        ),
        capture_output=True,
        cwd=ROOT,
    )
    assert done.returncode == 2
    assert b"File too large: OUT was not written" in done.stderr
    assert (tmp_path / "secret").read_bytes() == b"old"
    assert files(tmp_path) == {"key", "plain", "secret"}


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_signal_in_the_middle_leaves_nothing(cipher_daemon, tmp_path, key, number):
    """The input is a pipe that never ends, so that the command is in the middle for sure."""
    os.mkfifo(tmp_path / "pipe")
    options = ["-a", "aes-ctr", "-k", key, "--target", cipher_daemon.address]
    with (
        subprocess.Popen(
            # A shell's job in the background ignores it, and its children inherit that.
            command_after(
                "signal.signal(signal.SIGINT, signal.SIG_DFL)",
                *("encrypt", *options, tmp_path / "pipe", tmp_path / "secret"),
            ),
            stderr=subprocess.PIPE,
            cwd=ROOT,
        ) as process,
        (tmp_path / "pipe").open("wb") as pipe,
    ):
        pipe.write(bytes(4 << 20))
        pipe.flush()
        _wait_until_written(process.pid)
        process.send_signal(number)
        assert process.wait(60) != 0
    assert files(tmp_path) == {"key", "pipe"}


def _wait_until_written(pid: int) -> None:
    """Until the command has written a megabyte to where it writes."""

    def written() -> int:
        lines = Path(f"/proc/{pid}/io").read_text().splitlines()
        return int(dict(line.split(": ") for line in lines)["wchar"])

    until(lambda: written() > 2 << 20)


@pytest.mark.long
def test_half_a_gigabyte_in_constant_memory(cipher_daemon, tmp_path, key):
    """The command's memory is what it is for a small file; what it keeps of the first pass are digests."""
    options = ["-a", "aes-gcm", "-k", key, "--target", cipher_daemon.address, "--force"]
    peaks = {}
    for size in (8 << 20, 512 << 20):
        with (tmp_path / "plain").open("wb") as file:
            os.truncate(file.fileno(), size)
        for way, source, sink in (("encrypt", "plain", "secret"), ("decrypt", "secret", "back")):
            with subprocess.Popen(command(way, *options, tmp_path / source, tmp_path / sink), cwd=ROOT) as process:
                _, status, usage = os.wait4(process.pid, 0)
                process.returncode = os.waitstatus_to_exitcode(status)
            assert process.returncode == 0
            peaks[way, size] = usage.ru_maxrss << 10
        assert (tmp_path / "back").stat().st_size == size
    assert subprocess.run(["cmp", tmp_path / "plain", tmp_path / "back"]).returncode == 0
    for way in ("encrypt", "decrypt"):
        assert peaks[way, 512 << 20] < peaks[way, 8 << 20] + (192 << 20), peaks


def test_without_a_daemon_one_is_started(tmp_path, key):
    """On this machine's CPU, with a plugin that compiles fast."""
    (tmp_path / "plain").write_bytes(bytes(range(256)) * 9)
    options = ["-a", "hight-ctr", "--byte-order", "low-first", "-k", key, "--device", "cpu"]
    environment = {**os.environ, "VERIFIER_PLUGINS__TRUST": "any"}
    for way, source, sink in (("encrypt", "plain", "secret"), ("decrypt", "secret", "back")):
        subprocess.run(
            command(way, *options, tmp_path / source, tmp_path / sink), check=True, cwd=ROOT, env=environment
        )
    assert (tmp_path / "back").read_bytes() == (tmp_path / "plain").read_bytes()
