"""Watching: renames count, half copies do not, and a failure is no end."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from _waiting import until

from verifier.registry import Watcher
from verifier.registry._watch import renamed_plugins

STAGED = "plugin.toml.new"


@pytest.fixture
def watched(registry, tmp_path):
    """A watched folder, once the watch is known to be on."""
    folder = tmp_path / "watched"
    folder.mkdir()
    watcher = Watcher(registry, [folder])
    watcher.start()
    yield folder
    watcher.close()


def stage(folder: Path, into: Path) -> None:
    """Copies a plugin with the manifest under another name."""
    shutil.copytree(folder, into)
    (into / "plugin.toml").rename(into.parent / f".{into.name}-manifest")
    (into.parent / f".{into.name}-manifest").rename(into / STAGED)


def commit(folder: Path) -> None:
    (folder / STAGED).rename(folder / "plugin.toml")


def loads(registry) -> list[tuple[str, str]]:
    return [
        (record.label.partition("#")[0], record.outcome) for record in registry.audit() if record.actor == "watcher"
    ]


@pytest.fixture
def until_loaded(registry, watched, make):
    """until_loaded(folder, version) commits a staged folder until the watch, which a thread starts, has seen it."""

    def until_loaded(folder, version):
        def seen():
            if (folder / "plugin.toml").exists():
                (folder / "plugin.toml").rename(folder / STAGED)
            commit(folder)
            return any(status.version == version and status.active for status in registry.index())

        until(seen, f"{version} is loaded")

    return until_loaded


def test_a_renamed_manifest_loads(registry, watched, make, until_loaded):
    stage(make("p"), watched / "p")
    until_loaded(watched / "p", "1.0.0")
    assert loads(registry)[0] == ("parity@1.0.0", "OK")


def test_copies_and_writes_do_not_load(registry, watched, make, until_loaded):
    """Whatever is written before a rename that loads was seen before it: had it counted, it would be loaded."""
    shutil.copytree(make("copy", version="2.0.0"), watched / "copy")
    (watched / "copy" / "plugin.toml").write_text((watched / "copy" / "plugin.toml").read_text() + "\n")
    stage(make("p"), watched / "p")
    until_loaded(watched / "p", "1.0.0")
    assert {status.version for status in registry.index()} == {"1.0.0"}


def test_a_bad_plugin_changes_nothing_and_a_later_good_one_loads(registry, watched, make, until_loaded):
    stage(make("p"), watched / "p")
    until_loaded(watched / "p", "1.0.0")
    bad = make("bad", version="1.1.0", manifest=lambda text: text.replace("VALID_PARITY = 0", "VALID_PARITY = 1"))
    stage(bad, watched / "next")
    commit(watched / "next")
    until(lambda: ("parity@1.1.0", "SelfTestError") in loads(registry), "the bad one is refused")
    assert registry.resolve("verify", "PARITY").instance.version == "1.0.0"
    shutil.rmtree(watched / "next")
    stage(make("good", version="1.1.0"), watched / "next")
    commit(watched / "next")
    until(lambda: registry.resolve("verify", "PARITY").instance.version == "1.1.0", "the good one is loaded")


def test_an_incomplete_plugin_never_loads(registry, watched, make, until_loaded):
    stage(make("half", version="1.1.0"), watched / "half")
    (watched / "half" / "sums.cuh").unlink()
    commit(watched / "half")
    stage(make("p"), watched / "p")
    until_loaded(watched / "p", "1.0.0")
    assert {status.version for status in registry.index()} == {"1.0.0"}


def test_what_is_there_already_is_not_loaded(registry, tmp_path, make):
    folder = tmp_path / "watched"
    shutil.copytree(make("p"), folder / "p")
    watcher = Watcher(registry, [folder, tmp_path / "missing"])
    watcher.start()
    watcher.close()
    assert registry.index() == []


def test_only_what_stands_where_a_sibling_vanished_counts(tmp_path, make):
    plugin = make("p")
    manifest, bundle = plugin / "plugin.toml", tmp_path / "x.bundle"
    bundle.write_bytes(b"")
    assert renamed_plugins([manifest], []) == []
    assert renamed_plugins([manifest], [plugin / STAGED]) == [plugin]
    assert renamed_plugins([manifest], [tmp_path / STAGED]) == []
    assert renamed_plugins([plugin], [tmp_path / ".p.new"]) == [plugin]
    assert renamed_plugins([plugin], [tmp_path / ".q.new"]) == []
    assert renamed_plugins([plugin], []) == []
    assert renamed_plugins([bundle], [tmp_path / ".x.bundle.new"]) == [bundle]
    assert renamed_plugins([bundle], [bundle]) == []
    assert renamed_plugins([plugin / "sums.cuh"], [plugin / "other"]) == []
