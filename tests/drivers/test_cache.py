"""The cache of images."""

from __future__ import annotations

import hashlib
import multiprocessing
import os
from pathlib import Path

import pytest

from verifier.drivers import Image
from verifier.drivers._cache import image_key
from verifier.drivers.build import ImageCache, default_cache_folder
from verifier.errors import ConfigError


def image(data: bytes, log: str = "") -> Image:
    return Image("sm_90", data, hashlib.sha256(data).hexdigest(), log)


@pytest.fixture
def cache(tmp_path) -> ImageCache:
    return ImageCache(tmp_path / "images")


def test_what_is_put_is_got(cache):
    binary = bytes(range(256)) * 3 + b"\n\n"
    cache.put("a", image(binary, "line\nline ü"))
    assert cache.get("a") == image(binary, "line\nline ü")
    assert cache.get("b") is None


def test_everything_that_matters_is_in_the_key():
    base = {"files": {"a": b"1", "b": b"2"}, "source": "a", "target": "t", "defines": {"X": 1}, "compiler": "c 1"}
    changes = [
        {"files": {"a": b"1", "b": b"3"}},
        {"files": {"a": b"1", "c": b"2"}},
        {"files": {"a": b"1"}},
        {"source": "b"},
        {"target": "u"},
        {"defines": {"X": 2}},
        {"defines": {}},
        {"compiler": "c 2"},
    ]
    keys = [image_key(**(base | change)) for change in ({}, *changes)]
    assert len(set(keys)) == len(keys)
    assert image_key(**base) == image_key(**(base | {"files": {"b": b"2", "a": b"1"}, "defines": {"X": "1"}}))


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: b"",
        lambda data: data[:-1],
        lambda data: data[:-1] + bytes([data[-1] ^ 1]),
        lambda data: b"{}\n" + data.partition(b"\n")[2],
        lambda data: b"null\n",
        lambda data: b"\xff\xfe\n" + data,
    ],
)
def test_a_damaged_entry_counts_as_absent(cache, tmp_path, damage):
    cache.put("a", image(b"data" * 100))
    (entry,) = (tmp_path / "images").glob("*.image")
    entry.write_bytes(damage(entry.read_bytes()))
    assert cache.get("a") is None
    cache.put("a", image(b"data" * 100))
    assert cache.get("a") is not None


def test_the_folder_is_bounded_and_keeps_what_was_used_last(tmp_path):
    cache = ImageCache(tmp_path, max_bytes=3500)
    for number, key in enumerate("abc"):
        cache.put(key, image(key.encode() * 1000))
        os.utime(tmp_path / f"{key}.image", (number, number))
    assert cache.get("a") is not None  # counts as used now
    cache.put("d", image(b"d" * 1000))
    assert [key for key in "abcd" if cache.get(key)] == ["a", "c", "d"]


def test_one_image_over_the_limit_is_kept_alone(tmp_path):
    cache = ImageCache(tmp_path, max_bytes=100)
    cache.put("a", image(b"a" * 1000))
    cache.put("b", image(b"b" * 1000))
    assert cache.get("a") is None
    assert cache.get("b") is not None


def test_a_folder_that_others_may_write_to_is_refused(tmp_path):
    tmp_path.chmod(0o777)
    with pytest.raises(ConfigError, match="others may write"):
        ImageCache(tmp_path)


def test_a_folder_that_cannot_be_made_is_an_error(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match="image cache"):
        ImageCache(tmp_path / "file" / "images")


def test_a_new_folder_is_private(tmp_path):
    ImageCache(tmp_path / "a" / "b")
    assert (tmp_path / "a" / "b").stat().st_mode & 0o777 == 0o700


def test_a_failed_write_leaves_nothing(cache, tmp_path):
    folder = tmp_path / "images"
    (folder / "a.image").mkdir()  # a rename onto it fails
    cache.put("a", image(b"data"))
    assert [path.name for path in folder.iterdir()] == ["a.image"]


def test_where_the_cache_is(monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")
    assert default_cache_folder() == Path("/somewhere/verifier/images")
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", "/home/someone")
    assert default_cache_folder() == Path("/home/someone/.cache/verifier/images")


def hammer(folder: Path, seed: int) -> None:
    cache = ImageCache(folder, max_bytes=20_000)
    for turn in range(200):
        key = str((turn * 7 + seed) % 10)
        found = cache.get(key)
        assert found is None or found.data == key.encode() * 3000
        cache.put(key, image(key.encode() * 3000))


def test_several_processes_share_it(tmp_path):
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=hammer, args=(tmp_path / "images", seed)) for seed in range(3)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0, 0, 0]
    assert not list((tmp_path / "images").glob(".new-*"))
