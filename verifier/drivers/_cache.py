"""Built images on disk, by the hash of everything that went into them."""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path

import structlog

from verifier.drivers._driver import Image
from verifier.errors import ConfigError
from verifier.folders import cache_folder

__all__ = ["ImageCache", "default_cache_folder", "image_key"]

DEFAULT_MAX_BYTES = 2 << 30
_SUFFIX = ".image"

_log = structlog.get_logger(__name__)


def default_cache_folder() -> Path:
    """verifier/images under the user's cache folder ($XDG_CACHE_HOME, or ~/.cache)."""
    return cache_folder() / "images"


def image_key(
    files: Mapping[str, bytes], source: str, target: str, defines: Mapping[str, int | str], compiler: str
) -> str:
    """SHA-256, hexadecimal, over all that decides what a build gives."""
    parts = {
        "files": {name: hashlib.sha256(data).hexdigest() for name, data in files.items()},
        "source": source,
        "target": target,
        "defines": {name: str(value) for name, value in defines.items()},
        "compiler": compiler,
    }
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


class ImageCache:
    """A folder of images, bounded in bytes; several processes may share it.

    An entry is a line of JSON and the image behind it, put in place by one rename. What does not agree with its own
    digest counts as absent. Images are code: the folder must belong to this user alone.
    """

    def __init__(self, folder: Path, max_bytes: int = DEFAULT_MAX_BYTES) -> None:
        """Makes the folder where it is missing. Raises ConfigError where others could write to it."""
        self._folder = folder
        self._max_bytes = max_bytes
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            status = folder.stat()
        except OSError as error:
            raise ConfigError(
                f"image cache {folder}: {error.strerror}; XDG_CACHE_HOME, or plugins.cache_folder of a daemon, names "
                "another folder"
            ) from None
        if status.st_uid != os.geteuid() or status.st_mode & 0o022:
            raise ConfigError(f"image cache {folder}: others may write to it; make it yours with mode 0700")

    def get(self, key: str) -> Image | None:
        """The image of that key, or None."""
        path = self._path(key)
        try:
            head, _, data = path.read_bytes().partition(b"\n")
            os.utime(path)
        except FileNotFoundError:
            return None
        except OSError as error:
            _log.warning("image cache entry cannot be read", path=str(path), error=str(error))
            return None
        try:
            entry = json.loads(head)
            image = Image(str(entry["target"]), data, str(entry["digest"]), str(entry["log"]))
        except (ValueError, KeyError, TypeError):
            image = None
        if image is None or hashlib.sha256(data).hexdigest() != image.digest:
            _log.warning("image cache entry is damaged, building again", path=str(path))
            return None
        return image

    def put(self, key: str, image: Image) -> None:
        """Keeps an image, then drops those used longest ago until the folder is within its limit."""
        head = json.dumps({"target": image.target, "digest": image.digest, "log": image.log}).encode()
        try:
            descriptor, temporary = tempfile.mkstemp(dir=self._folder, prefix=".new-")
            try:
                with os.fdopen(descriptor, "wb") as file:
                    file.write(head + b"\n" + image.data)
                Path(temporary).replace(self._path(key))
            except BaseException:
                Path(temporary).unlink(missing_ok=True)
                raise
            self._evict(keep=self._path(key))
        except OSError as error:  # a full disk must not stop a plugin from loading
            _log.warning("image cache entry cannot be written", folder=str(self._folder), error=str(error))

    def _path(self, key: str) -> Path:
        return self._folder / f"{key}{_SUFFIX}"

    def _evict(self, keep: Path) -> None:
        entries = []
        for path in self._folder.glob(f"*{_SUFFIX}"):
            try:
                status = path.stat()
            except FileNotFoundError:  # another process has dropped it
                continue
            entries.append((status.st_mtime_ns, status.st_size, path))
        total = sum(size for _, size, _ in entries)
        for _, size, path in sorted(entries):
            if total <= self._max_bytes:
                break
            if path != keep:
                path.unlink(missing_ok=True)
                total -= size
