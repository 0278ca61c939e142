"""Where plugins are found."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import verifier
from verifier.errors import NotFoundError, PluginError
from verifier.manifest import FILE_NAME, load_manifest
from verifier.registry._bundle import read_bundle
from verifier.registry._source import PluginSource

__all__ = [
    "BUNDLE_SUFFIX",
    "LOCK_NAME",
    "common_folder",
    "find_source",
    "plugin_paths",
    "read_source",
    "shipped_folder",
]

BUNDLE_SUFFIX = ".bundle"
LOCK_NAME = "plugins.lock"

_LABEL = re.compile(r"([a-z][a-z0-9_]{0,63})(?:@(\d{1,6}\.\d{1,6}\.\d{1,6}))?\Z")


def shipped_folder() -> Path:
    """The plugins that come with the package: beside it in a checkout, inside it when installed."""
    package = Path(verifier.__file__).resolve().parent
    installed = package / "_plugins"
    return installed if installed.is_dir() else package.parent / "plugins"


def common_folder() -> Path:
    """The headers that every plugin may include."""
    return shipped_folder() / "common"


def plugin_paths(folder: Path) -> Iterator[Path]:
    """Plugin folders and bundles under `folder`, sorted: NAME/, NAME/VERSION/ and *.bundle. What cannot be read is
    left out."""
    for path in _entries(folder):
        if _has_manifest(path) or (path.suffix == BUNDLE_SUFFIX and path.is_file()):
            yield path
        else:
            yield from filter(_has_manifest, _entries(path))


def _entries(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except OSError:
        return []


def _has_manifest(folder: Path) -> bool:
    try:
        return (folder / FILE_NAME).is_file()
    except OSError:
        return False


def read_source(path: Path) -> PluginSource:
    """Reads a plugin folder or a bundle. Raises ManifestError, PluginError, NotFoundError."""
    if not os.path.exists(path):  # noqa: PTH110  # unlike Path's, false for names that no file can have
        raise NotFoundError("plugin", f"{str(path)[:200]}: no such folder or bundle")
    if path.suffix == BUNDLE_SUFFIX:
        return read_bundle(path)
    return PluginSource.read(path, common_folder())


def find_source(what: str | Path, folders: Sequence[Path]) -> PluginSource:
    """A plugin by path, by name (its highest version) or by name@version in `folders` and the shipped folder.

    Raises NotFoundError naming where it was looked for, ManifestError, PluginError.
    """
    if isinstance(what, Path) or "/" in what or what.endswith(BUNDLE_SUFFIX):
        return read_source(Path(what))
    match = _LABEL.match(what)
    if match is None:
        raise NotFoundError("plugin", f"{what[:200]!r} is neither name, name@version, nor a path")
    name, version = match.groups()
    searched = [*folders, shipped_folder()]
    there = [
        (*_name_and_version(path), -order, path)
        for order, folder in enumerate(searched)
        for path in plugin_paths(folder)
    ]
    found = [entry for entry in there if entry[0] == name and version in (None, ".".join(map(str, entry[1])))]
    if not found:
        names = ", ".join(sorted({entry[0] for entry in there} - {""}))
        raise NotFoundError(
            "plugin",
            f"{what} is not in {', '.join(map(str, searched))}, where there are {names}; "
            "one that lies elsewhere is named by its path",
        )
    return read_source(max(found)[3])


def _name_and_version(path: Path) -> tuple[str, tuple[int, ...]]:
    """Of a plugin that may be broken: then it is found under no name, and its own load tells why."""
    try:
        manifest = read_source(path).manifest if path.suffix == BUNDLE_SUFFIX else load_manifest(path)
    except (PluginError, NotFoundError):
        return "", ()
    return manifest.name, tuple(map(int, manifest.version.split(".")))
