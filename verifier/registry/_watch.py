"""Watching plugin folders: off unless the operator turned it on.

Only a rename in place counts: of a manifest (plugin.toml.new to plugin.toml, as the last step of a copy), of a
plugin's whole folder (.sm2.new to sm2), or of a bundle. A file that is merely written or copied there never does.
What was renamed too early fails its digest or its known answers and changes nothing; the next rename is looked at
anew.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Protocol

import structlog
from watchfiles import Change, watch

from verifier.errors import VerifierError
from verifier.manifest import FILE_NAME
from verifier.registry._folders import BUNDLE_SUFFIX, read_source
from verifier.registry._instance import Instance, InstanceStatus
from verifier.registry._source import PluginSource

__all__ = ["Watcher", "renamed_plugins"]

_log = structlog.get_logger(__name__)

SETTLE_MS = 200


class _Loads(Protocol):
    def active(self) -> list[Instance]: ...
    def load(self, what: PluginSource, *, force: bool, actor: str) -> InstanceStatus: ...


class Watcher:
    """Loads what is renamed into place in `folders`, one after the other, on its own thread."""

    def __init__(self, registry: _Loads, folders: Sequence[Path]) -> None:
        self._registry = registry
        self._folders = tuple(folder.resolve() for folder in folders if folder.is_dir())
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="registry-watcher", daemon=True)

    def start(self) -> None:
        """Starts watching. What is in the folders already is not loaded."""
        self._thread.start()

    def close(self) -> None:
        """Stops watching; a load under way ends first."""
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        if not self._folders:
            return
        gone: list[Path] = []
        for changes in watch(*self._folders, stop_event=self._stop, debounce=SETTLE_MS, recursive=True):
            # The two halves of one rename may come in neighbouring sets.
            new = [Path(path) for change, path in changes if change is Change.added]
            before, gone = gone, [Path(path) for change, path in changes if change is Change.deleted]
            for path in renamed_plugins(new, [*before, *gone]):
                self._load(path)

    def _load(self, path: Path) -> None:
        try:
            source = read_source(path)
            served = {instance.digest for instance in self._registry.active()}
            if source.digest not in served:
                status = self._registry.load(source, force=True, actor="watcher")
                _log.info("plugin loaded by watching", plugin=status.label, path=str(path))
        except (VerifierError, OSError) as error:
            _log.warning("plugin not loaded by watching", path=str(path), error=str(error))


def renamed_plugins(added: Iterable[Path], deleted: Sequence[Path]) -> list[Path]:
    """Plugin folders and bundles among `added` that were renamed into place: a sibling with a longer name of the same
    beginning, dots in front aside, has just vanished."""
    found = []
    for path in sorted(set(added)):
        if not any(_staged(other, path) for other in deleted):
            continue
        if path.name == FILE_NAME:
            found.append(path.parent)
        elif (path.suffix == BUNDLE_SUFFIX and path.is_file()) or (path / FILE_NAME).is_file():
            found.append(path)
    return found


def _staged(staged: Path, final: Path) -> bool:
    return staged.parent == final.parent and staged != final and staged.name.lstrip(".").startswith(final.name)
