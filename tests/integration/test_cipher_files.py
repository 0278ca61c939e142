"""`verifier cipher` on real files: round trips, other tools' results, and files that were changed."""

from __future__ import annotations

import random
import shutil
import subprocess

import pytest
from _cipher_command import files, key_file
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from verifier.cli._cipher_input import Input

SEED = 7
HEADER = 32


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
def test_round_trips(cipher, tmp_path, algorithm, key_bytes, options):
    generator = random.Random(SEED)
    key = key_file(tmp_path / "key", generator.randbytes(key_bytes))
    sizes = [0, 1, 16, 511, 512, 4096 + 5] + ([(5 << 20) + 3] if algorithm == "aes-gcm" else [])
    for size in sizes:
        plain, secret, back = tmp_path / "plain", tmp_path / "secret", tmp_path / "back"
        plain.write_bytes(generator.randbytes(size))
        plain.chmod(0o640)
        arguments = ("--algorithm", algorithm, "--key-file", key, "--force", *options)
        cipher("encrypt", *arguments, plain, secret)
        assert secret.read_bytes()[:8] == b"vcipher1"
        assert secret.stat().st_mode & 0o777 == 0o640
        cipher("decrypt", *arguments, secret, back)
        assert back.read_bytes() == plain.read_bytes(), (algorithm, size)
    assert files(tmp_path) == {"key", "plain", "secret", "back"}


def test_two_encryptions_of_one_file_differ(cipher, tmp_path, key):
    (tmp_path / "plain").write_bytes(bytes(1000))
    for name in ("one", "two"):
        cipher("encrypt", "-a", "aes-gcm", "-k", key, tmp_path / "plain", tmp_path / name)
    assert (tmp_path / "one").read_bytes()[HEADER:] != (tmp_path / "two").read_bytes()[HEADER:]


def test_the_body_is_what_cryptography_gives(cipher, tmp_path, key):
    data = random.Random(SEED).randbytes(100_000)
    (tmp_path / "plain").write_bytes(data)
    cipher("encrypt", "-a", "aes-gcm", "-k", key, "--aad", "ledger 7", tmp_path / "plain", tmp_path / "secret")
    secret = (tmp_path / "secret").read_bytes()
    nonce = secret[16:28]
    assert secret[HEADER:] == AESGCM(bytes.fromhex(key.read_text())).encrypt(nonce, data, b"ledger 7")
    problem = cipher("decrypt", "-a", "aes-gcm", "-k", key, tmp_path / "secret", tmp_path / "back", code=1)
    assert "the tag is wrong" in problem
    cipher("decrypt", "-a", "aes-gcm", "-k", key, "--aad", "ledger 7", tmp_path / "secret", tmp_path / "back")
    assert (tmp_path / "back").read_bytes() == data


@pytest.mark.parametrize("mode", ["ctr", "cbc", "ecb"])
def test_openssl_reads_and_writes_the_same(cipher, tmp_path, key, mode):
    if shutil.which("openssl") is None:
        pytest.skip("there is no openssl")
    data = random.Random(SEED).randbytes(70_001)
    (tmp_path / "plain").write_bytes(data)
    iv = "000102030405060708090a0b0c0d0eff"
    vector = [] if mode == "ecb" else ["-iv", iv]
    ours = ["-a", f"aes-{mode}", "-k", key, "--detached", *(["--i-know-ecb"] if mode == "ecb" else ["--iv", iv])]
    theirs = ["openssl", "enc", f"-aes-128-{mode}", "-K", key.read_text().strip(), *vector]
    subprocess.run([*theirs, "-in", tmp_path / "plain", "-out", tmp_path / "theirs"], check=True)
    cipher("encrypt", *ours, tmp_path / "plain", tmp_path / "secret")
    assert (tmp_path / "secret").read_bytes() == (tmp_path / "theirs").read_bytes()
    cipher("decrypt", *ours, tmp_path / "theirs", tmp_path / "back")
    assert (tmp_path / "back").read_bytes() == data


@pytest.mark.parametrize(
    "change", ["flipped in the body", "flipped in the tag", "flipped in the nonce", "cut", "longer"]
)
def test_a_changed_file_gives_nothing(cipher, tmp_path, key, change):
    (tmp_path / "plain").write_bytes(bytes(3_000_000))
    cipher("encrypt", "-a", "aes-gcm", "-k", key, tmp_path / "plain", tmp_path / "secret")
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
    problem = cipher("decrypt", "-a", "aes-gcm", "-k", key, "--force", tmp_path / "secret", back, code=1)
    assert "the tag is wrong: it was changed or cut" in problem
    assert back.read_bytes() == b"what was there before"
    assert files(tmp_path) == {"key", "plain", "secret", "back"}


def test_a_file_cut_in_its_header_or_tag_is_named(cipher, tmp_path, key):
    (tmp_path / "plain").write_bytes(b"")
    cipher("encrypt", "-a", "aes-gcm", "-k", key, tmp_path / "plain", tmp_path / "secret")
    secret = (tmp_path / "secret").read_bytes()
    for size, problem in ((0, "does not begin with this tool's header"), (31, "header"), (40, "no room for a tag")):
        (tmp_path / "cut").write_bytes(secret[:size])
        assert problem in cipher("decrypt", "-a", "aes-gcm", "-k", key, tmp_path / "cut", tmp_path / "back", code=2)
    (tmp_path / "cut").write_bytes(secret[:15] + b"\1" + secret[16:])
    assert "damaged" in cipher("decrypt", "-a", "aes-gcm", "-k", key, tmp_path / "cut", tmp_path / "back", code=2)
    assert not (tmp_path / "back").exists()


def test_nobody_chooses_the_mode_but_the_caller(cipher, tmp_path, key):
    """A header rewritten from GCM to CTR would otherwise turn authentication off."""
    (tmp_path / "plain").write_bytes(b"pay 1 to A")
    cipher("encrypt", "-a", "aes-gcm", "-k", key, tmp_path / "plain", tmp_path / "secret")
    secret = (tmp_path / "secret").read_bytes()
    nonce = secret[16:28]
    forged = secret[:9] + b"\2" + secret[10:13] + b"\x10\0\0" + nonce + b"\0\0\0\2" + secret[HEADER:-16]
    (tmp_path / "secret").write_bytes(forged)
    problem = cipher("decrypt", "-a", "aes-gcm", "-k", key, tmp_path / "secret", tmp_path / "back", code=2)
    assert "its header says aes-ctr" in problem
    assert "asked for is aes-gcm" in problem
    assert not (tmp_path / "back").exists()


@pytest.mark.parametrize("change", ["cut", "flipped", "another key"])
def test_wrong_padding_is_named(cipher, tmp_path, key, change):
    (tmp_path / "plain").write_bytes(bytes(100_000))
    cipher("encrypt", "-a", "aes-cbc", "-k", key, tmp_path / "plain", tmp_path / "secret")
    secret = (tmp_path / "secret").read_bytes()
    if change == "cut":
        (tmp_path / "secret").write_bytes(secret[:-16])
    elif change == "flipped":
        (tmp_path / "secret").write_bytes(secret[:-17] + bytes([secret[-17] ^ 0x40]) + secret[-16:])
    else:
        key = key_file(tmp_path / "key", bytes(16))
    problem = cipher("decrypt", "-a", "aes-cbc", "-k", key, tmp_path / "secret", tmp_path / "back", code=2)
    assert "the padding is wrong" in problem
    assert not (tmp_path / "back").exists()
    (tmp_path / "secret").write_bytes(secret[:-1])
    problem = cipher("decrypt", "-a", "aes-cbc", "-k", key, tmp_path / "secret", tmp_path / "back", code=2)
    assert "end in a block of 15" in problem


def test_a_file_that_changes_while_it_is_read(cipher, tmp_path, key, monkeypatch):
    """What was authenticated is what is decrypted: nothing else is."""
    (tmp_path / "plain").write_bytes(bytes(3 << 20))
    cipher("encrypt", "-a", "aes-gcm", "-k", key, tmp_path / "plain", tmp_path / "secret")
    again = Input.again

    def changed(self, begin, end, progress):
        with (tmp_path / "secret").open("r+b") as file:
            file.seek(2 << 20)
            file.write(b"changed")
        return again(self, begin, end, progress)

    monkeypatch.setattr(Input, "again", changed)
    problem = cipher("decrypt", "-a", "aes-gcm", "-k", key, tmp_path / "secret", tmp_path / "back", code=2)
    assert "was changed while it was read" in problem
    assert not (tmp_path / "back").exists()
