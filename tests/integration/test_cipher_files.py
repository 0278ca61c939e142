"""`verifier cipher` on real files: round trips, other tools' results, and that nothing half-written is left."""

from __future__ import annotations

import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import typer
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from typer.testing import CliRunner

from verifier.cli import cipher

SEED = 7
ROOT = Path(__file__).parents[2]
HEADER = 32


@pytest.fixture
def run(cipher_daemon):
    app = typer.Typer()
    cipher.register(app)
    app.callback()(lambda: None)

    def invoke(*arguments, code: int = 0) -> str:
        result = CliRunner().invoke(app, ["cipher", *map(str, arguments), "--target", cipher_daemon.address])
        assert result.exit_code == code, result.output
        return " ".join(result.output.split())

    return invoke


@pytest.fixture
def key(tmp_path):
    return key_file(tmp_path / "key", random.Random(SEED).randbytes(16))


def key_file(path: Path, key: bytes) -> Path:
    path.write_text(key.hex() + "\n")
    path.chmod(0o600)
    return path


def command(*arguments) -> list[str]:
    return [sys.executable, "-m", "verifier", "cipher", *map(str, arguments)]


def files(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


@pytest.mark.parametrize(
    ("algorithm", "key_bytes", "options"),
    [
        ("aes-gcm", 32, ()),
        ("aes-192-ctr", 24, ()),
        ("aes-cbc", 16, ()),
        ("aes-ecb", 16, ("--i-know-ecb",)),
        ("kuznyechik-gcm", 32, ()),
        ("kuznyechik-ctr", 32, ("--gost-counter",)),
        ("hight-cbc", 16, ("--byte-order", "high-first")),
    ],
)
def test_round_trips(run, tmp_path, algorithm, key_bytes, options):
    generator = random.Random(SEED)
    key = key_file(tmp_path / "key", generator.randbytes(key_bytes))
    sizes = [0, 1, 16, 511, 512, 4096 + 5] + ([(5 << 20) + 3] if algorithm == "aes-gcm" else [])
    for size in sizes:
        plain, secret, back = tmp_path / "plain", tmp_path / "secret", tmp_path / "back"
        plain.write_bytes(generator.randbytes(size))
        plain.chmod(0o640)
        arguments = ("--algorithm", algorithm, "--key-file", key, "--force", *options)
        run("encrypt", *arguments, plain, secret)
        assert secret.read_bytes()[:8] == b"vcipher1"
        assert secret.stat().st_mode & 0o777 == 0o640
        run("decrypt", *arguments, secret, back)
        assert back.read_bytes() == plain.read_bytes(), (algorithm, size)
    assert files(tmp_path) == {"key", "plain", "secret", "back"}


def test_two_encryptions_of_one_file_differ(run, tmp_path, key):
    (tmp_path / "plain").write_bytes(bytes(1000))
    for name in ("one", "two"):
        run("encrypt", "-a", "aes-gcm", "-k", key, tmp_path / "plain", tmp_path / name)
    assert (tmp_path / "one").read_bytes()[HEADER:] != (tmp_path / "two").read_bytes()[HEADER:]


def test_the_body_is_what_cryptography_gives(run, tmp_path, key):
    data = random.Random(SEED).randbytes(100_000)
    (tmp_path / "plain").write_bytes(data)
    run("encrypt", "-a", "aes-gcm", "-k", key, "--aad", "ledger 7", tmp_path / "plain", tmp_path / "secret")
    secret = (tmp_path / "secret").read_bytes()
    nonce = secret[16:28]
    assert secret[HEADER:] == AESGCM(bytes.fromhex(key.read_text())).encrypt(nonce, data, b"ledger 7")
    problem = run("decrypt", "-a", "aes-gcm", "-k", key, tmp_path / "secret", tmp_path / "back", code=1)
    assert "the tag is wrong" in problem
    run("decrypt", "-a", "aes-gcm", "-k", key, "--aad", "ledger 7", tmp_path / "secret", tmp_path / "back")
    assert (tmp_path / "back").read_bytes() == data


@pytest.mark.parametrize("mode", ["ctr", "cbc", "ecb"])
def test_openssl_reads_and_writes_the_same(run, tmp_path, key, mode):
    if shutil.which("openssl") is None:
        pytest.skip("there is no openssl")
    data = random.Random(SEED).randbytes(70_001)
    (tmp_path / "plain").write_bytes(data)
    iv = "000102030405060708090a0b0c0d0eff"
    vector = [] if mode == "ecb" else ["-iv", iv]
    ours = ["-a", f"aes-{mode}", "-k", key, "--detached", *(["--i-know-ecb"] if mode == "ecb" else ["--iv", iv])]
    theirs = ["openssl", "enc", f"-aes-128-{mode}", "-K", key.read_text().strip(), *vector]
    subprocess.run([*theirs, "-in", tmp_path / "plain", "-out", tmp_path / "theirs"], check=True)
    run("encrypt", *ours, tmp_path / "plain", tmp_path / "secret")
    assert (tmp_path / "secret").read_bytes() == (tmp_path / "theirs").read_bytes()
    run("decrypt", *ours, tmp_path / "theirs", tmp_path / "back")
    assert (tmp_path / "back").read_bytes() == data


@pytest.mark.parametrize(
    "change", ["flipped in the body", "flipped in the tag", "flipped in the nonce", "cut", "longer"]
)
def test_a_changed_file_gives_nothing(run, tmp_path, key, change):
    (tmp_path / "plain").write_bytes(bytes(3_000_000))
    run("encrypt", "-a", "aes-gcm", "-k", key, tmp_path / "plain", tmp_path / "secret")
    secret = bytearray((tmp_path / "secret").read_bytes())
    match change:
        case "flipped in the body":
            secret[HEADER + 1_500_000] ^= 1
        case "flipped in the tag":
            secret[-1] ^= 1
        case "flipped in the nonce":
            secret[16] ^= 1
        case "cut":
            del secret[-1]
        case _:
            secret += b"\0"
    (tmp_path / "secret").write_bytes(secret)
    back = tmp_path / "back"
    back.write_bytes(b"what was there before")
    problem = run("decrypt", "-a", "aes-gcm", "-k", key, "--force", tmp_path / "secret", back, code=1)
    assert "the tag is wrong: it was changed or cut" in problem
    assert back.read_bytes() == b"what was there before"
    assert files(tmp_path) == {"key", "plain", "secret", "back"}


def test_a_file_cut_in_its_header_or_tag_is_named(run, tmp_path, key):
    (tmp_path / "plain").write_bytes(b"")
    run("encrypt", "-a", "aes-gcm", "-k", key, tmp_path / "plain", tmp_path / "secret")
    secret = (tmp_path / "secret").read_bytes()
    for size, problem in ((0, "does not begin with this tool's header"), (31, "header"), (40, "no room for a tag")):
        (tmp_path / "cut").write_bytes(secret[:size])
        assert problem in run("decrypt", "-a", "aes-gcm", "-k", key, tmp_path / "cut", tmp_path / "back", code=2)
    (tmp_path / "cut").write_bytes(secret[:15] + b"\1" + secret[16:])
    assert "damaged" in run("decrypt", "-a", "aes-gcm", "-k", key, tmp_path / "cut", tmp_path / "back", code=2)
    assert not (tmp_path / "back").exists()


def test_nobody_chooses_the_mode_but_the_caller(run, tmp_path, key):
    """A header rewritten from GCM to CTR would otherwise turn authentication off."""
    (tmp_path / "plain").write_bytes(b"pay 1 to A")
    run("encrypt", "-a", "aes-gcm", "-k", key, tmp_path / "plain", tmp_path / "secret")
    secret = (tmp_path / "secret").read_bytes()
    nonce = secret[16:28]
    forged = secret[:9] + b"\2" + secret[10:13] + b"\x10\0\0" + nonce + b"\0\0\0\2" + secret[HEADER:-16]
    (tmp_path / "secret").write_bytes(forged)
    problem = run("decrypt", "-a", "aes-gcm", "-k", key, tmp_path / "secret", tmp_path / "back", code=2)
    assert "its header says aes-ctr" in problem
    assert "asked for is aes-gcm" in problem
    assert not (tmp_path / "back").exists()


@pytest.mark.parametrize("change", ["cut", "flipped", "another key"])
def test_wrong_padding_is_named(run, tmp_path, key, change):
    (tmp_path / "plain").write_bytes(bytes(100_000))
    run("encrypt", "-a", "aes-cbc", "-k", key, tmp_path / "plain", tmp_path / "secret")
    secret = (tmp_path / "secret").read_bytes()
    if change == "cut":
        (tmp_path / "secret").write_bytes(secret[:-16])
    elif change == "flipped":
        (tmp_path / "secret").write_bytes(secret[:-17] + bytes([secret[-17] ^ 0x40]) + secret[-16:])
    else:
        key = key_file(tmp_path / "key", bytes(16))
    problem = run("decrypt", "-a", "aes-cbc", "-k", key, tmp_path / "secret", tmp_path / "back", code=2)
    assert "the padding is wrong" in problem
    assert not (tmp_path / "back").exists()
    (tmp_path / "secret").write_bytes(secret[:-1])
    problem = run("decrypt", "-a", "aes-cbc", "-k", key, tmp_path / "secret", tmp_path / "back", code=2)
    assert "end in a block of 15" in problem


WRONG = [
    ("another cipher", ("-a", "des-gcm"), "the ciphers are aes, aes-128"),
    ("another mode", ("-a", "aes-xts"), "aes has the modes ecb, ctr, cbc, gcm"),
    ("gcm of 64-bit blocks", ("-a", "hight-gcm"), "hight has the modes ecb, ctr, cbc"),
    ("no byte order", ("-a", "hight-ctr"), "--byte-order: hight needs it"),
    ("byte order of aes", ("-a", "aes-ctr", "--byte-order", "low-first"), "--byte-order: only hight"),
    ("gost of aes", ("-a", "aes-ctr", "--gost-counter"), "--gost-counter: only kuznyechik-ctr"),
    ("ecb", ("-a", "aes-ecb"), "--i-know-ecb"),
    ("aad of ctr", ("-a", "aes-ctr", "--aad", "x"), "aes-ctr authenticates nothing"),
    ("iv with a header", ("-a", "aes-ctr", "--iv", "00" * 16), "--iv: only with --detached"),
    ("no iv", ("-a", "aes-ctr", "--detached"), "--iv: 0 bytes; aes-ctr takes 16"),
    ("no hexadecimal iv", ("-a", "aes-ctr", "--detached", "--iv", "xy"), "--iv: not hexadecimal"),
    ("key of another length", ("-a", "aes-256-ctr"), "a key of 16 bytes; aes-256-ctr takes 32"),
    ("half a pair of TLS", ("-a", "aes-ctr", "--tls-key", "key"), "--tls-certificate and --tls-key belong together"),
    ("not loaded", ("-a", "sm4-gcm"), "verifier plugin load sm4"),
]


@pytest.mark.parametrize(("arguments", "problem"), [case[1:] for case in WRONG], ids=[case[0] for case in WRONG])
def test_what_is_wrong_is_named(run, tmp_path, key, arguments, problem):
    (tmp_path / "plain").write_bytes(b"data")
    assert problem in run("encrypt", *arguments, "-k", key, tmp_path / "plain", tmp_path / "secret", code=2)
    assert files(tmp_path) == {"key", "plain"}


def test_key_files(run, tmp_path, key):
    plain, secret = tmp_path / "plain", tmp_path / "secret"
    plain.write_bytes(b"data")
    for mode in (0o640, 0o604, 0o620):
        key.chmod(mode)
        problem = run("encrypt", "-a", "aes-gcm", "-k", key, plain, secret, code=2)
        assert f"mode {mode:04o} lets others at it: chmod 600" in problem
    run("encrypt", "-a", "aes-gcm", "-k", key, "--any-key-mode", plain, secret)
    key.chmod(0o600)
    key.write_bytes(b"\xff" * 16)
    assert "--key-format raw" in run("encrypt", "-a", "aes-gcm", "-k", key, plain, secret, "-f", code=2)
    run("encrypt", "-a", "aes-gcm", "-k", key, "--key-format", "raw", plain, secret, "-f")
    key.write_bytes(b"\xff" * 17)
    problem = run("encrypt", "-a", "aes-gcm", "-k", key, "--key-format", "raw", plain, secret, "-f", code=2)
    assert "a key of 17 bytes; aes-gcm takes 16 or 24 or 32" in problem
    assert "No such file" in run("encrypt", "-a", "aes-gcm", "-k", tmp_path / "none", plain, secret, "-f", code=2)
    assert "regular file" in run("encrypt", "-a", "aes-gcm", "-k", "/dev/null", plain, secret, "-f", code=2)
    if os.geteuid() == 0:
        os.chown(key, 12345, -1)
        problem = run("encrypt", "-a", "aes-gcm", "-k", key, plain, secret, "-f", code=2)
        assert "key: belongs to user 12345, who may change it" in problem


def test_places_that_cannot_be_read_or_written(run, tmp_path, key):
    plain = tmp_path / "plain"
    plain.write_bytes(b"data")
    arguments = ("encrypt", "-a", "aes-gcm", "-k", key)
    assert "none: No such file" in run(*arguments, tmp_path / "none", tmp_path / "secret", code=2)
    assert "pack it first" in run(*arguments, tmp_path, tmp_path / "secret", code=2)
    assert "No such file" in run(*arguments, plain, tmp_path / "folder" / "secret", code=2)
    (tmp_path / "secret").write_bytes(b"old")
    assert "secret: exists; --force replaces it" in run(*arguments, plain, tmp_path / "secret", code=2)
    assert (tmp_path / "secret").read_bytes() == b"old"
    os.mkfifo(tmp_path / "pipe")
    assert "not a regular file" in run(*arguments, "--force", plain, tmp_path / "pipe", code=2)
    assert files(tmp_path) == {"key", "plain", "secret", "pipe"}


def test_a_file_without_permission(run, tmp_path, key):
    if os.geteuid() == 0:
        pytest.skip("root may read everything")
    plain = tmp_path / "plain"
    plain.write_bytes(b"data")
    plain.chmod(0)
    assert "Permission denied" in run("encrypt", "-a", "aes-gcm", "-k", key, plain, tmp_path / "secret", code=2)


def test_a_link_is_followed(run, tmp_path, key):
    (tmp_path / "plain").write_bytes(b"data")
    (tmp_path / "target").write_bytes(b"old")
    (tmp_path / "link").symlink_to("target")
    run("encrypt", "-a", "aes-gcm", "-k", key, "--force", tmp_path / "plain", tmp_path / "link")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "target").read_bytes()[:8] == b"vcipher1"


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
        command("encrypt", *options, tmp_path / "plain", tmp_path / "secret"),
        capture_output=True,
        cwd=ROOT,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20)),
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
            command("encrypt", *options, tmp_path / "pipe", tmp_path / "secret"),
            stderr=subprocess.PIPE,
            cwd=ROOT,
            # A shell's job in the background ignores it, and its children inherit that.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
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
    for _ in range(3000):
        for line in Path(f"/proc/{pid}/io").read_text().splitlines():
            name, _, value = line.partition(": ")
            if name == "wchar" and int(value) > 2 << 20:
                return
        time.sleep(0.02)
    raise AssertionError("it never came to write")


def test_a_file_that_changes_while_it_is_read(run, tmp_path, key, monkeypatch):
    """What was authenticated is what is decrypted: nothing else is."""
    from verifier.cli._cipher_input import Input

    (tmp_path / "plain").write_bytes(bytes(3 << 20))
    run("encrypt", "-a", "aes-gcm", "-k", key, tmp_path / "plain", tmp_path / "secret")
    again = Input.again

    def changed(self, begin, end, progress):
        with (tmp_path / "secret").open("r+b") as file:
            file.seek(2 << 20)
            file.write(b"changed")
        return again(self, begin, end, progress)

    monkeypatch.setattr(Input, "again", changed)
    problem = run("decrypt", "-a", "aes-gcm", "-k", key, tmp_path / "secret", tmp_path / "back", code=2)
    assert "was changed while it was read" in problem
    assert not (tmp_path / "back").exists()


def test_a_key_is_not_sent_in_the_clear(tmp_path, key):
    app = typer.Typer()
    cipher.register(app)
    app.callback()(lambda: None)
    (tmp_path / "plain").write_bytes(b"data")
    result = CliRunner().invoke(
        app,
        [
            *("cipher", "encrypt", "-a", "aes-gcm", "-k", str(key), "--target", "198.51.100.7:50051"),
            *(str(tmp_path / name) for name in ("plain", "secret")),
        ],
    )
    assert result.exit_code == 2
    assert "in the clear: name --tls-ca, or say --insecure" in " ".join(result.output.split())


def test_list(run):
    table = run("list")
    assert "kuznyechik" in table
    assert "aes@" in table
    app = typer.Typer()
    cipher.register(app)
    app.callback()(lambda: None)
    assert '"iv_bytes"' in CliRunner().invoke(app, ["cipher", "list", "--json"]).output


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
