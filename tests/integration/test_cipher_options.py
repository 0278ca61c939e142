"""What `verifier cipher` refuses, and says why: options, key files, and places for its files."""

from __future__ import annotations

import os

import pytest
from _cipher_command import files, invoke

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
def test_what_is_wrong_is_named(cipher, tmp_path, key, arguments, problem):
    (tmp_path / "plain").write_bytes(b"data")
    assert problem in cipher("encrypt", *arguments, "-k", key, tmp_path / "plain", tmp_path / "secret", code=2)
    assert files(tmp_path) == {"key", "plain"}


def test_key_files(cipher, tmp_path, key):
    plain, secret = tmp_path / "plain", tmp_path / "secret"
    plain.write_bytes(b"data")
    for mode in (0o640, 0o604, 0o620):
        key.chmod(mode)
        problem = cipher("encrypt", "-a", "aes-gcm", "-k", key, plain, secret, code=2)
        assert f"mode {mode:04o} lets others at it: chmod 600" in problem
    cipher("encrypt", "-a", "aes-gcm", "-k", key, "--any-key-mode", plain, secret)
    key.chmod(0o600)
    key.write_bytes(b"\xff" * 16)
    assert "--key-format raw" in cipher("encrypt", "-a", "aes-gcm", "-k", key, plain, secret, "-f", code=2)
    cipher("encrypt", "-a", "aes-gcm", "-k", key, "--key-format", "raw", plain, secret, "-f")
    key.write_bytes(b"\xff" * 17)
    problem = cipher("encrypt", "-a", "aes-gcm", "-k", key, "--key-format", "raw", plain, secret, "-f", code=2)
    assert "a key of 17 bytes; aes-gcm takes 16 or 24 or 32" in problem
    assert "No such file" in cipher("encrypt", "-a", "aes-gcm", "-k", tmp_path / "none", plain, secret, "-f", code=2)
    assert "regular file" in cipher("encrypt", "-a", "aes-gcm", "-k", "/dev/null", plain, secret, "-f", code=2)
    if os.geteuid() == 0:
        os.chown(key, 12345, -1)
        problem = cipher("encrypt", "-a", "aes-gcm", "-k", key, plain, secret, "-f", code=2)
        assert "key: belongs to user 12345, who may change it" in problem


def test_places_that_cannot_be_read_or_written(cipher, tmp_path, key):
    plain = tmp_path / "plain"
    plain.write_bytes(b"data")
    arguments = ("encrypt", "-a", "aes-gcm", "-k", key)
    assert "none: No such file" in cipher(*arguments, tmp_path / "none", tmp_path / "secret", code=2)
    assert "pack it first" in cipher(*arguments, tmp_path, tmp_path / "secret", code=2)
    assert "No such file" in cipher(*arguments, plain, tmp_path / "folder" / "secret", code=2)
    (tmp_path / "secret").write_bytes(b"old")
    assert "secret: exists; --force replaces it" in cipher(*arguments, plain, tmp_path / "secret", code=2)
    assert (tmp_path / "secret").read_bytes() == b"old"
    os.mkfifo(tmp_path / "pipe")
    assert "not a regular file" in cipher(*arguments, "--force", plain, tmp_path / "pipe", code=2)
    assert files(tmp_path) == {"key", "plain", "secret", "pipe"}


def test_a_file_without_permission(cipher, tmp_path, key):
    if os.geteuid() == 0:
        pytest.skip("root may read everything")
    plain = tmp_path / "plain"
    plain.write_bytes(b"data")
    plain.chmod(0)
    assert "Permission denied" in cipher("encrypt", "-a", "aes-gcm", "-k", key, plain, tmp_path / "secret", code=2)


def test_a_link_is_followed(cipher, tmp_path, key):
    (tmp_path / "plain").write_bytes(b"data")
    (tmp_path / "target").write_bytes(b"old")
    (tmp_path / "link").symlink_to("target")
    cipher("encrypt", "-a", "aes-gcm", "-k", key, "--force", tmp_path / "plain", tmp_path / "link")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "target").read_bytes()[:8] == b"vcipher1"


def test_a_key_is_not_sent_in_the_clear(tmp_path, key):
    (tmp_path / "plain").write_bytes(b"data")
    options = ("-a", "aes-gcm", "-k", key, "--target", "198.51.100.7:50051")
    result = invoke("encrypt", *options, tmp_path / "plain", tmp_path / "secret")
    assert result.exit_code == 2
    assert "in the clear: name --tls-ca, or say --insecure" in " ".join(result.output.split())


def test_list(cipher):
    table = cipher("list")
    assert "kuznyechik" in table
    assert "aes@" in table
    assert '"iv_bytes"' in invoke("list", "--json").output
