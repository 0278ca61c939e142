"""A plugin's bytes: what counts, what is refused."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import verifier
from verifier.errors import ManifestError, PluginError
from verifier.registry import PluginSource, common_folder, find_source, shipped_folder
from verifier.registry import _source as source_module


def read(folder: Path) -> PluginSource:
    return PluginSource.read(folder, common_folder())


def test_holds_the_files_that_count(make):
    folder = make("p")
    (folder / "README.md").write_text("not compiled")
    source = read(folder)
    assert {"plugin.toml", "parity.cu", "sums.cuh", "vectors.json", "abi.cuh", "abi_cpu.cuh", "abi_gpu.cuh"} == set(
        source.files
    )
    assert source.label == "parity@1.0.0"
    assert set(source.files) - set(source.compiled) == {"plugin.toml", "vectors.json"}


@pytest.mark.parametrize("name", ["plugin.toml", "parity.cu", "sums.cuh", "vectors.json"])
def test_digest_changes_with_every_file(make, name):
    first, second = make("a"), make("b")
    assert read(first).digest == read(second).digest
    (second / name).write_text((second / name).read_text() + "\n")
    assert read(first).digest != read(second).digest


def test_digest_covers_the_common_headers(make, tmp_path):
    folder, common = make("p"), tmp_path / "common"
    common.mkdir()
    for path in common_folder().glob("abi*.cuh"):
        (common / path.name).write_bytes(path.read_bytes())
    before = PluginSource.read(folder, common).digest
    assert before == read(folder).digest
    (common / "abi_gpu.cuh").write_bytes((common / "abi_gpu.cuh").read_bytes() + b"\n")
    assert PluginSource.read(folder, common).digest != before


def test_digest_ignores_what_is_not_used(make):
    folder = make("p")
    before = read(folder).digest
    (folder / "README.md").write_text("words")
    assert read(folder).digest == before


def test_moving_bytes_between_files_changes_the_digest(make):
    first, second = make("a"), make("b")
    for folder, cut in ((first, 10), (second, 11)):
        text = "// " + "x" * 40 + "\n"
        (folder / "sums.cuh").write_text(text[cut:] + (folder / "sums.cuh").read_text())
        (folder / "parity.cu").write_text((folder / "parity.cu").read_text() + text[:cut])
    assert read(first).digest != read(second).digest


def test_refuses_a_link(make):
    folder = make("p")
    (folder / "sums.cuh").rename(folder / "elsewhere.cuh")
    (folder / "sums.cuh").symlink_to(folder / "elsewhere.cuh")
    with pytest.raises(PluginError, match=r"sums\.cuh: .*symbolic links are refused"):
        read(folder)


def test_refuses_a_linked_folder(make, tmp_path):
    (tmp_path / "link").symlink_to(make("p"))
    with pytest.raises(PluginError, match="symbolic links are refused"):
        read(tmp_path / "link")


def test_refuses_a_pipe_without_waiting(make):
    folder = make("p")
    (folder / "vectors.json").unlink()
    os.mkfifo(folder / "vectors.json")
    with pytest.raises(PluginError, match=r"vectors\.json: not a regular file"):
        read(folder)


@pytest.mark.parametrize("name", ["../../etc/passwd", "/etc/passwd", "sub/x.cuh", ".hidden"])
def test_refuses_an_include_that_leaves_the_folder(make, name):
    folder = make("p", source=lambda text: f'#include "{name}"\n{text}')
    with pytest.raises(PluginError, match="not a plain file name"):
        read(folder)


@pytest.mark.parametrize(
    ("key", "value"), [("source", "../parity.cu"), ("vectors", "/etc/passwd"), ("source", "a/b.cu")]
)
def test_refuses_a_manifest_that_leaves_the_folder(make, key, value):
    folder = make("p", manifest=lambda text: text.replace(f'{key} = "', f'{key} = "{value}" # "', 1))
    with pytest.raises(ManifestError, match=rf"plugin\.toml:\d+: {key}: "):
        read(folder)


def test_refuses_a_file_that_hides_a_common_header(make):
    folder = make("p")
    (folder / "abi.cuh").write_text("#pragma once\n")
    with pytest.raises(PluginError, match=r"hides abi\.cuh of the common headers"):
        read(folder)


def test_names_a_missing_include(make):
    folder = make("p")
    (folder / "sums.cuh").unlink()
    with pytest.raises(PluginError, match=r"sums\.cuh: cannot be read"):
        read(folder)


def test_refuses_a_file_over_the_limit(make, monkeypatch):
    folder = make("p")
    monkeypatch.setattr(source_module, "MAX_TOTAL_BYTES", 2000)
    with pytest.raises(PluginError, match="bytes, the limit is 2000"):
        read(folder)
    (folder / "vectors.json").write_bytes(b" " * (source_module.MAX_FILE_BYTES + 1))
    with pytest.raises(PluginError, match=rf"vectors\.json: more than {source_module.MAX_FILE_BYTES} bytes"):
        read(folder)


def test_refuses_too_many_files(make):
    count = source_module.MAX_FILES
    folder = make("p", source=lambda text: "".join(f'#include "h{i}.cuh"\n' for i in range(count)) + text)
    for i in range(count):
        (folder / f"h{i}.cuh").write_text("")
    with pytest.raises(PluginError, match=f"more than {count} files"):
        read(folder)


def test_refuses_a_manifest_that_is_not_text(make):
    folder = make("p")
    (folder / "plugin.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(ManifestError, match="not UTF-8"):
        read(folder)


def test_finds_by_name_version_and_path(make, tmp_path):
    old, new = make("old", version="1.9.0"), make("new", version="1.10.0")
    assert find_source("parity", [tmp_path]).version == "1.10.0"
    assert find_source("parity@1.9.0", [tmp_path]).origin == str(old)
    assert find_source(new, []).version == find_source(str(new), []).version == "1.10.0"


def test_an_earlier_folder_hides_a_later_one(make, tmp_path):
    first, second = make("a/p"), make("b/p")
    assert find_source("parity", [tmp_path / "a", tmp_path / "b"]).origin == str(first)
    assert find_source("parity", [tmp_path / "b", tmp_path / "a"]).origin == str(second)


def test_a_broken_neighbour_does_not_hide_a_plugin(make, tmp_path):
    make("good")
    make("bad", manifest=lambda _: "not TOML [")
    assert find_source("parity", [tmp_path]).origin == str(tmp_path / "good")


def test_ships_its_plugins():
    assert (shipped_folder() / "common" / "abi.cuh").is_file()


def test_an_installed_package_has_them_inside(tmp_path, monkeypatch):
    package = tmp_path / "verifier"
    (package / "_plugins" / "common").mkdir(parents=True)
    monkeypatch.setattr(verifier, "__file__", str(package / "__init__.py"))
    assert shipped_folder() == package / "_plugins"
    assert common_folder() == package / "_plugins" / "common"
    (package / "_plugins").rename(tmp_path / "plugins")
    assert shipped_folder() == tmp_path / "plugins"
