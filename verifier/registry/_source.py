"""A plugin's bytes, read once: what is digested is what is compiled."""

from __future__ import annotations

import hashlib
import os
import re
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

from verifier.drivers import Image
from verifier.errors import ManifestError, PluginError
from verifier.manifest import FILE_NAME, Manifest, parse_manifest

__all__ = ["MAX_FILES", "MAX_FILE_BYTES", "MAX_TOTAL_BYTES", "PluginSource"]

MAX_FILES = 128
MAX_FILE_BYTES = 32 << 20
MAX_TOTAL_BYTES = 64 << 20

_INCLUDE = re.compile(rb'^[ \t]*#[ \t]*include[ \t]*"([^"\n]*)"', re.MULTILINE)
_FILE_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}\Z")
_DOMAIN = b"verifier plugin 1\n"


@dataclass(frozen=True)
class PluginSource:
    """A plugin as it was read: its manifest and the bytes of every file that counts.

    `files` are the manifest, the sources, their quoted includes (the plugin's own and those of plugins/common, found
    transitively) and the known answers; `images` what a bundle brings built, by target. `digest` is SHA-256
    (hexadecimal) over the sorted names, lengths and SHA-256s of all of them. `signature` is what a signed bundle
    bears over `listing()`, unchecked; None for a folder or an unsigned bundle.
    """

    manifest: Manifest
    files: Mapping[str, bytes]
    images: Mapping[str, Image] = field(default_factory=dict)
    origin: str = ""
    signature: bytes | None = None

    @property
    def name(self) -> str:
        """The plugin's name."""
        return self.manifest.name

    @property
    def version(self) -> str:
        """The plugin's version."""
        return self.manifest.version

    @property
    def label(self) -> str:
        """name@version."""
        return self.manifest.label

    @property
    def compiled(self) -> dict[str, bytes]:
        """The files that a compiler may see: without manifest and known answers, whose changes need no new build."""
        return {name: data for name, data in self.files.items() if name not in (FILE_NAME, self.manifest.vectors)}

    def reached(self, source: str) -> dict[str, bytes]:
        """The files that a build from `source`, one of the manifest's sources, may see. Those of another variant do
        not count: a change there needs no new build of this one."""
        found: dict[str, bytes] = {}
        waiting = [source]
        while waiting:
            name = waiting.pop()
            if name not in found and name in self.files:
                found[name] = self.files[name]
                waiting += _includes(found[name])
        return found

    @property
    def digest(self) -> str:
        """SHA-256 over the canonical listing, hexadecimal."""
        return hashlib.sha256(self.listing()).hexdigest()

    def listing(self) -> bytes:
        """The canonical listing: one line a file, `sha256 length name`, sorted by name."""
        members = {f"source/{name}": data for name, data in self.files.items()}
        members |= {f"image/{target}": image.data for target, image in self.images.items()}
        lines = [f"{hashlib.sha256(data).hexdigest()} {len(data)} {name}\n" for name, data in sorted(members.items())]
        return _DOMAIN + "".join(lines).encode()

    @classmethod
    def read(cls, folder: Path, common: Path) -> PluginSource:
        """Reads a plugin folder once. `common` holds the shared headers.

        Links, names with a path in them, special files and anything over the limits are refused.
        Raises ManifestError or PluginError naming the file.
        """
        if folder.is_symlink() or not folder.is_dir():
            raise PluginError(f"{folder}: not a folder (symbolic links are refused)")
        files = {FILE_NAME: read_file(folder / FILE_NAME)}
        try:
            text = files[FILE_NAME].decode()
        except UnicodeDecodeError as error:
            raise ManifestError(f"{folder / FILE_NAME}: not UTF-8: {error}") from None
        manifest = parse_manifest(text, str(folder / FILE_NAME))
        files[manifest.vectors] = read_file(folder / manifest.vectors)
        for source in manifest.sources:
            _collect(files, source, folder, common)
        return cls(manifest, MappingProxyType(files), origin=str(folder.absolute()))

    @classmethod
    def of_files(
        cls,
        files: Mapping[str, bytes],
        images: Mapping[str, Image],
        *,
        origin: str,
        signature: bytes | None = None,
    ) -> PluginSource:
        """A plugin whose files are in memory already. Raises ManifestError or PluginError."""
        for name, data in files.items():
            check_name(name, origin)
            if len(data) > MAX_FILE_BYTES:
                raise PluginError(f"{origin}: {name} has {len(data)} bytes, the limit is {MAX_FILE_BYTES}")
        check_total(files, origin)
        if FILE_NAME not in files:
            raise ManifestError(f"{origin}: {FILE_NAME} is missing")
        try:
            text = files[FILE_NAME].decode()
        except UnicodeDecodeError as error:
            raise ManifestError(f"{origin}: {FILE_NAME} is not UTF-8: {error}") from None
        manifest = parse_manifest(text, f"{origin}:{FILE_NAME}")
        for name in (*manifest.sources, manifest.vectors):
            if name not in files:
                raise PluginError(f"{origin}: {name}, which {FILE_NAME} names, is missing")
        return cls(
            manifest,
            MappingProxyType(dict(files)),
            MappingProxyType(dict(images)),
            origin=origin,
            signature=signature,
        )


def check_name(name: str, where: str) -> None:
    """Refuses everything but a plain file name. Raises PluginError."""
    if not _FILE_NAME.match(name):
        raise PluginError(f"{where}: {name!r} is not a plain file name")


def check_total(files: Mapping[str, bytes], where: str) -> None:
    """Refuses too many files or bytes. Raises PluginError naming the limit."""
    if len(files) > MAX_FILES:
        raise PluginError(f"{where}: more than {MAX_FILES} files")
    total = sum(len(data) for data in files.values())
    if total > MAX_TOTAL_BYTES:
        raise PluginError(f"{where}: {total} bytes, the limit is {MAX_TOTAL_BYTES}")


def _collect(files: dict[str, bytes], source: str, folder: Path, common: Path) -> None:
    """Adds the source and what it includes, transitively. Includes in angle brackets are the compiler's."""
    waiting = [source]
    while waiting:
        name = waiting.pop()
        if name in files:
            continue
        check_name(name, f"{folder}: include")
        own, shared = folder / name, common / name
        if _exists(own) and _exists(shared):
            raise PluginError(f"{own}: hides {name} of the common headers; give it another name")
        files[name] = read_file(own if _exists(own) or not _exists(shared) else shared)
        check_total(files, str(folder))
        waiting += _includes(files[name])


def _includes(data: bytes) -> list[str]:
    return [match.decode("utf-8", "replace") for match in _INCLUDE.findall(data)]


def _exists(path: Path) -> bool:
    return os.path.lexists(path)


def read_file(path: Path, limit: int = MAX_FILE_BYTES) -> bytes:
    """A regular file's bytes, never through a link and never more than the limit. Raises PluginError."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise PluginError(f"{path}: cannot be read ({error.strerror}); symbolic links are refused") from None
    with os.fdopen(descriptor, "rb") as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise PluginError(f"{path}: not a regular file")
        data = file.read(limit + 1)
    if len(data) > limit:
        raise PluginError(f"{path}: more than {limit} bytes")
    return data
