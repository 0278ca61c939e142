"""Bundles: equal bytes for equal plugins, nothing hidden in them, and service without any compiler."""

from __future__ import annotations

import dataclasses
import hashlib
import io
import json
import zipfile
from pathlib import Path

import pytest

from verifier.drivers import Image, list_devices
from verifier.drivers.build import build_image, host_target
from verifier.errors import ManifestError, PluginError
from verifier.registry import PluginSource, Registry, bundle_bytes, common_folder, read_bundle
from verifier.registry import _bundle as bundle_module
from verifier.registry import _images as images_module
from verifier.registry._images import prebuilt
from verifier.workers import Fleet


@pytest.fixture
def packed(make, image_cache):
    """The toy plugin with its image for this CPU."""
    source = PluginSource.read(make("p"), common_folder())
    image = build_image(
        source.files, source.manifest.source, host_target(), source.manifest.defines, cache=image_cache
    )
    return dataclasses.replace(source, images={host_target(): image})


@pytest.fixture
def read(tmp_path):
    def read(data: bytes) -> PluginSource:
        path = tmp_path / "p.bundle"
        path.write_bytes(data)
        return read_bundle(path)

    return read


def rewrite(data: bytes, change, *, compression=zipfile.ZIP_STORED) -> bytes:
    """The archive with its members, a dictionary, changed; the index is left as it is."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    change(members)
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", compression) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return file.getvalue()


def reindex(members: dict[str, bytes]) -> None:
    """Makes the index agree with the members, as an attacker without a key can."""
    index = json.loads(members["index.json"])
    index["members"] = {
        name: {"sha256": hashlib.sha256(data).hexdigest(), "bytes": len(data)}
        for name, data in members.items()
        if name not in ("index.json", "signature")
    }
    members["index.json"] = json.dumps(index).encode()


def test_comes_back_as_it_was(packed, read):
    back = read(bundle_bytes(packed))
    assert (back.label, back.digest) == (packed.label, packed.digest)
    assert dict(back.files) == dict(packed.files)
    assert back.images[host_target()].data == packed.images[host_target()].data


def test_equal_plugins_are_equal_bytes(packed):
    shuffled = dataclasses.replace(packed, files=dict(reversed(list(packed.files.items()))))
    assert bundle_bytes(packed) == bundle_bytes(shuffled)


def test_the_digest_covers_the_images(packed):
    changed = {host_target(): Image(host_target(), b"other", "")}
    assert dataclasses.replace(packed, images=changed).digest != packed.digest
    assert dataclasses.replace(packed, images={}).digest != packed.digest


def test_loads_where_there_is_no_compiler(registry, packed, tmp_path, monkeypatch):
    def none(*_args, **_kwargs):
        raise AssertionError("something was built")

    monkeypatch.setattr(images_module, "build_apart", none)
    monkeypatch.setattr(images_module, "find_image", none)
    path = tmp_path / "p.bundle"
    path.write_bytes(bundle_bytes(packed))
    status = registry.load(path)
    assert (status.state, status.origin) == ("ACTIVE", str(path))
    assert registry.reload("parity").active


def test_a_folder_is_replaced_by_a_bundle_of_it(registry, packed, tmp_path):
    registry.load(Path(packed.origin))
    path = tmp_path / "p.bundle"
    path.write_bytes(bundle_bytes(packed))
    assert registry.load(path, force=True).digest == packed.digest


def test_every_flipped_byte_is_noticed(packed, read, tmp_path):
    data = bundle_bytes(dataclasses.replace(packed, signature=bytes(64)))
    step = max(1, len(data) // 400)
    for position in range(0, len(data), step):
        changed = bytearray(data)
        changed[position] ^= 0x41
        try:
            back = read(bytes(changed))
        except PluginError:
            continue
        # What the archive's own headers hold beside names and sizes has no say, and neither has a signature here.
        assert (back.digest, dict(back.files)) == (packed.digest, dict(packed.files)), position


@pytest.mark.parametrize("length", [0, 1, 100, -1, -100])
def test_a_cut_bundle_is_refused(packed, read, length):
    data = bundle_bytes(packed)
    with pytest.raises(PluginError, match=r"p\.bundle: "):
        read(data[:length])


@pytest.mark.parametrize(
    "name",
    [
        "source/../evil.cuh",
        "source//etc/passwd",
        "../evil",
        "/evil",
        "source/sub/x.cuh",
        "image/../x",
        "other/x",
        "x",
    ],
)
def test_names_with_a_path_are_refused(packed, read, name):
    def add(members):
        members[name] = b"x"
        reindex(members)

    with pytest.raises(PluginError, match=r"not a plain file name|no name of a bundle's member"):
        read(rewrite(bundle_bytes(packed), add))


def test_a_member_beside_the_index_is_refused(packed, read):
    with pytest.raises(PluginError, match=r"source/extra\.cuh is not both in the archive and in its index"):
        read(rewrite(bundle_bytes(packed), lambda members: members.update({"source/extra.cuh": b""})))


def test_a_missing_member_is_refused(packed, read):
    with pytest.raises(PluginError, match=r"source/sums\.cuh is not both in the archive and in its index"):
        read(rewrite(bundle_bytes(packed), lambda members: members.pop("source/sums.cuh")))


def test_a_changed_member_is_corrupt(packed, read):
    with pytest.raises(PluginError, match=r"source/sums\.cuh is corrupt"):
        read(rewrite(bundle_bytes(packed), lambda members: members.update({"source/sums.cuh": b"other"})))


def test_an_index_of_another_plugin_is_refused(packed, read):
    def change(members):
        members["source/sums.cuh"] += b"\n"
        reindex(members)

    with pytest.raises(PluginError, match=r"the index says parity@1\.0\.0"):
        read(rewrite(bundle_bytes(packed), change))


@pytest.mark.parametrize("name", ["source/plugin.toml", "source/parity.cu", "source/vectors.json"])
def test_an_incomplete_plugin_is_refused(packed, read, name):
    def change(members):
        del members[name]
        reindex(members)

    with pytest.raises((ManifestError, PluginError), match=f"{name.removeprefix('source/')}.* is missing"):
        read(rewrite(bundle_bytes(packed), change))


def test_a_compressed_bundle_is_refused(packed, read):
    with pytest.raises(PluginError, match="is compressed"):
        read(rewrite(bundle_bytes(packed), lambda members: None, compression=zipfile.ZIP_DEFLATED))


def test_a_doubled_member_is_refused(packed, read):
    file = io.BytesIO(bundle_bytes(packed))
    with zipfile.ZipFile(file, "a") as archive, pytest.warns(UserWarning, match="Duplicate name"):
        archive.writestr("source/sums.cuh", b"other")
    with pytest.raises(PluginError, match=r"'source/sums\.cuh' is there twice"):
        read(file.getvalue())


def test_an_oversized_bundle_is_refused(packed, read, monkeypatch):
    monkeypatch.setattr(bundle_module, "MAX_BUNDLE_BYTES", 1000)
    with pytest.raises(PluginError, match="more than 1000 bytes"):
        read(bundle_bytes(packed))


def test_too_many_members_are_refused(packed, read):
    with pytest.raises(PluginError, match=f"the limit is {bundle_module.MAX_MEMBERS}"):
        read(rewrite(bundle_bytes(packed), lambda members: members.update({f"image/a{i}": b"" for i in range(300)})))


@pytest.mark.parametrize(("key", "value"), [("format", 2), ("format", "x"), ("extra", 1), ("members", [])])
def test_a_wrong_index_is_refused(packed, read, key, value):
    def change(members):
        members["index.json"] = json.dumps(json.loads(members["index.json"]) | {key: value}).encode()

    with pytest.raises(PluginError, match=r"index\.json|format 2, this daemon reads 1"):
        read(rewrite(bundle_bytes(packed), change))


def test_a_linked_bundle_is_refused(packed, tmp_path):
    (tmp_path / "real").write_bytes(bundle_bytes(packed))
    (tmp_path / "p.bundle").symlink_to(tmp_path / "real")
    with pytest.raises(PluginError, match="symbolic links are refused"):
        read_bundle(tmp_path / "p.bundle")


def test_an_image_for_another_machine_fails_its_load(registry, packed, tmp_path):
    cubin = build_image(packed.files, packed.manifest.source, "sm_90", packed.manifest.defines)
    for data in (cubin.data, b"\x7fELF nothing"):
        path = tmp_path / "p.bundle"
        image = Image(host_target(), data, hashlib.sha256(data).hexdigest())
        path.write_bytes(bundle_bytes(dataclasses.replace(packed, images={host_target(): image})))
        with pytest.raises(PluginError):
            registry.load(path)
        assert registry.index()[-1].state == "FAILED"


@pytest.mark.parametrize(
    ("have", "target", "chosen"),
    [
        (["sm_80", "sm_90", "compute_80"], "sm_90", "sm_90"),
        (["sm_80", "sm_90", "compute_80"], "sm_86", "sm_80"),
        (["sm_89", "sm_80", "compute_80"], "sm_86", "sm_80"),
        (["sm_80", "sm_90", "compute_80"], "sm_100", "compute_80"),
        (["compute_80", "compute_90", "compute_120"], "sm_100", "compute_90"),
        (["sm_90", "compute_90"], "sm_80", None),
        (["x86-64-v2", "x86-64-v3", "sm_90"], "x86-64-v4", "x86-64-v3"),
        (["x86-64-v4"], "x86-64-v3", None),
        (["x86-64-v2"], "aarch64", None),
        (["aarch64"], "aarch64", "aarch64"),
        ([], "sm_90", None),
    ],
)
def test_the_best_image_is_chosen(have, target, chosen):
    images = {name: Image(name, b"", "") for name in have}
    image = prebuilt(images, target)
    assert (None if image is None else image.target) == chosen


@pytest.mark.gpu
@pytest.mark.parametrize("kind", ["cubin", "PTX"])
def test_a_gpu_is_served_by_either_image(packed, image_cache, options, worker_options, tmp_path, kind):
    gpus = [device for device in list_devices() if device.kind == "cuda"]
    if not gpus:
        pytest.skip("there is no GPU")
    target = gpus[0].target if kind == "cubin" else "compute_80"
    image = build_image(packed.compiled, packed.manifest.source, target, packed.manifest.defines, cache=image_cache)
    path = tmp_path / "p.bundle"
    path.write_bytes(bundle_bytes(dataclasses.replace(packed, images={target: image})))
    fleet = Fleet([gpus[0].id], worker_options)
    fleet.start()
    registry = Registry(fleet, options)
    try:
        assert registry.load(path).devices == (gpus[0].id,)
    finally:
        registry.close()
        fleet.close()
