"""Certificates that follow their files, and what files are refused for."""

from __future__ import annotations

import datetime
import os
import ssl
from types import SimpleNamespace

import pytest
from _authority import Authority
from cryptography import x509
from cryptography.hazmat.primitives import serialization

from verifier.api import Tls, _tls
from verifier.api._tls import _Follower
from verifier.errors import ConfigError


@pytest.fixture
def authority():
    return Authority()


@pytest.fixture
def follow(authority, tmp_path):
    """A follower of good files, the files, and what it has told."""
    files = authority.write(tmp_path)
    told = []
    tls = Tls(
        *(files[name] for name in ("tls_certificate_file", "tls_key_file", "tls_client_ca_file")),
        observer=lambda taken, expires: told.append(taken),
    )
    read = tls._read()
    return _Follower(tls, read, tls._check(read)), files, told


def test_files_that_stay_change_nothing(follow):
    follower, _, told = follow
    assert [follower() for _ in range(3)] == [None] * 3
    assert told == []


def test_new_files_are_taken_once(follow, authority, tmp_path):
    follower, _, told = follow
    authority.write(tmp_path)
    assert follower() is not None
    assert follower() is None
    assert told == [True]


def _cut(files):
    path = files["tls_certificate_file"]
    path.write_bytes(path.read_bytes()[:200])


def _empty(files):
    files["tls_key_file"].write_bytes(b"")


def _gone(files):
    files["tls_certificate_file"].unlink()


def _no_authority(files):
    files["tls_client_ca_file"].write_bytes(b"-----BEGIN CERTIFICATE-----\n")


def _no_such_version(files):
    path = files["tls_certificate_file"]
    der = x509.load_pem_x509_certificate(path.read_bytes()).public_bytes(serialization.Encoding.DER)
    changed = der.replace(b"\xa0\x03\x02\x01\x02", b"\xa0\x03\x02\x01\x07", 1)
    path.write_bytes(ssl.DER_cert_to_PEM_cert(changed).encode())


BREAK = {
    "no such version": _no_such_version,
    "cut": _cut,
    "empty": _empty,
    "gone": _gone,
    "no authority": _no_authority,
}


@pytest.mark.parametrize("damage", BREAK.values(), ids=BREAK.keys())
def test_broken_files_keep_the_old_and_are_told_once(follow, authority, tmp_path, damage, capsys):
    follower, files, told = follow
    damage(files)
    assert [follower() for _ in range(5)] == [None] * 5
    assert told == [False]
    authority.write(tmp_path)
    assert follower() is not None
    assert told == [False, True]


def test_the_old_files_come_back(follow, tmp_path):
    """Broken and then restored as they were: they are in use already, and are taken over again."""
    follower, files, told = follow
    good = files["tls_key_file"].read_bytes()
    _empty(files)
    assert follower() is None
    files["tls_key_file"].write_bytes(good)
    assert follower() is not None
    assert told == [False, True]


def test_a_key_that_comes_before_its_certificate(follow, authority, tmp_path):
    """Two files cannot be replaced at once: between the two writes they do not belong together."""
    follower, files, told = follow
    key, certificate = authority.issue("CN=daemon")
    files["tls_key_file"].write_bytes(key)
    assert follower() is None
    files["tls_certificate_file"].write_bytes(certificate)
    assert follower() is not None
    assert told == [False, True]


def test_a_certificate_whose_time_has_not_come_is_taken_when_it_has(follow, authority, tmp_path, monkeypatch):
    follower, _, told = follow
    authority.write(tmp_path)  # valid from two hours ago on

    class Earlier(datetime.datetime):
        @classmethod
        def now(cls, zone=None):
            return datetime.datetime.now(zone) - datetime.timedelta(hours=3)

    with monkeypatch.context() as patch:
        patch.setattr(_tls, "datetime", SimpleNamespace(datetime=Earlier, UTC=datetime.UTC))
        assert [follower() for _ in range(3)] == [None] * 3
    assert told == [False]
    assert follower() is not None
    assert follower() is None
    assert told == [False, True]


def test_files_that_change_within_one_tick_of_the_clock(follow, authority, tmp_path):
    follower, files, _ = follow
    stamps = {path: path.stat() for path in files.values()}
    authority.write(tmp_path)
    for path, stat in stamps.items():
        os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    assert follower() is not None


@pytest.mark.parametrize(
    ("subject_hours", "words"),
    [(-1.0, "valid from"), (1.0, "")],
)
def test_a_certificate_that_has_expired(authority, tmp_path, subject_hours, words):
    files = authority.write(tmp_path, hours=subject_hours)
    tls = Tls(files["tls_certificate_file"], files["tls_key_file"])
    if not words:
        tls.check()
        return
    with pytest.raises(ConfigError, match=rf"server\.tls_certificate_file: .*{words}"):
        tls.check()


def test_a_key_of_another_certificate(authority, tmp_path):
    files = authority.write(tmp_path)
    files["tls_key_file"].write_bytes(authority.issue("CN=other")[0])
    with pytest.raises(ConfigError, match=r"server\.tls_key_file: .*not the key of"):
        Tls(files["tls_certificate_file"], files["tls_key_file"]).check()


def test_a_key_with_a_passphrase(authority, tmp_path):
    files = authority.write(tmp_path)
    key = serialization.load_pem_private_key(files["tls_key_file"].read_bytes(), None)
    files["tls_key_file"].write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(b"secret"),
        )
    )
    with pytest.raises(ConfigError, match="has a passphrase"):
        Tls(files["tls_certificate_file"], files["tls_key_file"]).check()


def test_a_missing_file_names_its_setting(authority, tmp_path):
    files = authority.write(tmp_path)
    with pytest.raises(ConfigError, match=r"server\.tls_client_ca_file: .*No such file"):
        Tls(files["tls_certificate_file"], files["tls_key_file"], tmp_path / "none").check()
