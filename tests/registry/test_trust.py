"""Who may load: lock files, signatures, and nothing else."""

from __future__ import annotations

import dataclasses

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from verifier.errors import ConfigError, TrustError
from verifier.registry import (
    PluginSource,
    RegistryOptions,
    Trust,
    bundle_bytes,
    common_folder,
    read_bundle,
    read_lock,
    sign,
    write_lock,
)


def read(folder):
    return PluginSource.read(folder, common_folder())


def pem(key):
    return key.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)


@pytest.fixture
def keys(tmp_path):
    """Two private keys and the file of the first one's public key."""
    first, second = Ed25519PrivateKey.generate(), Ed25519PrivateKey.generate()
    path = tmp_path / "first.pub"
    path.write_bytes(pem(first))
    return first, second, path


def test_refusal_names_the_command_that_allows_it(make, tmp_path):
    source = read(make("p"))
    lock = tmp_path / "site.lock"
    write_lock(lock, [])
    trust = Trust(RegistryOptions(lock_files=(lock,)))
    with pytest.raises(TrustError) as refused:
        trust.check(source)
    text = str(refused.value)
    assert source.digest in text
    assert f"verifier plugin lock {source.origin} --lock-file {lock}" in text
    write_lock(lock, [source])  # what that command does; no restart is needed
    assert trust.check(source) == f"listed in {lock}"


def test_one_changed_byte_is_refused(make, tmp_path):
    folder = make("p")
    lock = tmp_path / "site.lock"
    write_lock(lock, [read(folder)])
    trust = Trust(RegistryOptions(lock_files=(lock,)))
    trust.check(read(folder))
    (folder / "sums.cuh").write_bytes((folder / "sums.cuh").read_bytes() + b"\n")
    with pytest.raises(TrustError):
        trust.check(read(folder))


def test_a_digest_is_trusted_for_its_label_only(make, tmp_path):
    source = read(make("p"))
    lock = tmp_path / "site.lock"
    lock.write_text(f'[plugins]\n"other@1.0.0" = ["{source.digest}"]\n')
    with pytest.raises(TrustError):
        Trust(RegistryOptions(lock_files=(lock,))).check(source)


def test_a_signed_bundle(make, tmp_path, keys):
    first, second, public = keys
    source = read(make("p"))
    trust = Trust(RegistryOptions(public_keys=(public,)))
    for signed, allowed in ((sign(source, first), True), (sign(source, second), False), (source, False)):
        path = tmp_path / "p.bundle"
        path.write_bytes(bundle_bytes(signed))
        bundle = read_bundle(path)
        if allowed:
            assert trust.check(bundle) == f"signed by {public}"
        else:
            with pytest.raises(TrustError):
                trust.check(bundle)


def test_a_signature_covers_every_byte(make, keys):
    first, _, public = keys
    trust = Trust(RegistryOptions(public_keys=(public,)))
    signature = sign(read(make("p")), first).signature
    other = read(make("q", answers=lambda data: data.update(source="other")))
    with pytest.raises(TrustError, match="signed by none of the configured keys"):
        trust.check(dataclasses.replace(other, signature=signature))


@pytest.mark.parametrize("length", [0, 63, 65])
def test_a_signature_of_another_length_is_refused(make, keys, length):
    source = dataclasses.replace(read(make("p")), signature=bytes(length))
    with pytest.raises(TrustError):
        Trust(RegistryOptions(public_keys=(keys[2],))).check(source)


def test_any(make):
    assert Trust(RegistryOptions(trust="any")).check(read(make("p"))) == "anything is trusted"
    with pytest.raises(TrustError):
        Trust(RegistryOptions()).check(read(make("q")))


def test_a_refused_load_changes_nothing(fleet, make, options, tmp_path):
    from verifier.registry import Registry

    folder = make("p")
    lock = tmp_path / "site.lock"
    write_lock(lock, [read(folder)])
    registry = Registry(fleet, dataclasses.replace(options, trust="locked", lock_files=(lock,)))
    try:
        good = registry.load(folder)
        with pytest.raises(TrustError):
            registry.load(make("q", version="1.1.0"))
        assert [status.state for status in registry.index()] == ["ACTIVE", "FAILED"]
        assert registry.resolve("verify", "PARITY").instance.label == good.label
        assert registry.audit()[-1].outcome == "TrustError"
        registry.unload("parity", wait=True)
    finally:
        registry.close()


def test_a_lock_file_keeps_what_it_lists(make, tmp_path):
    lock = tmp_path / "site.lock"
    first, second = read(make("a")), read(make("b", version="2.0.0"))
    changed = read(make("c", source=lambda text: text + "// changed\n"))
    for source in (first, second, changed, first):
        write_lock(lock, [source])
    assert read_lock(lock) == {
        "parity@1.0.0": tuple(sorted([first.digest, changed.digest])),
        "parity@2.0.0": (second.digest,),
    }
    write_lock(lock, [changed], replace=True)
    assert read_lock(lock) == {"parity@1.0.0": (changed.digest,)}


@pytest.mark.parametrize(
    "text",
    [
        "not toml [",
        "",
        "[other]\n",
        '[plugins]\n"a@1.0.0" = "00"\n',
        '[plugins]\n"a@1.0.0" = ["00"]\n',
        "plugins = 3\n",
    ],
)
def test_a_wrong_lock_file_is_an_error_at_start(tmp_path, text):
    lock = tmp_path / "site.lock"
    lock.write_text(text)
    with pytest.raises(ConfigError, match=r"site\.lock"):
        Trust(RegistryOptions(lock_files=(lock,)))


def test_a_wrong_key_is_an_error_at_start(tmp_path):
    path = tmp_path / "key.pub"
    for content in (b"nothing", pem(generate_private_key(SECP256R1()))):
        path.write_bytes(content)
        with pytest.raises(ConfigError, match=r"key\.pub"):
            Trust(RegistryOptions(public_keys=(path,)))
    with pytest.raises(ConfigError, match="missing"):
        Trust(RegistryOptions(public_keys=(tmp_path / "missing.pub",)))
