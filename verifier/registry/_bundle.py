"""Bundles: one file with a plugin's sources, known answers and built images.

A zip archive, stored and not compressed, with fixed times and order, so that equal contents are equal bytes:
`index.json` (format, label, digest, and every member's SHA-256 and length), `image/TARGET`, `source/NAME`, and in a
signed bundle `signature`, 64 bytes of Ed25519 over the plugin's canonical listing.
"""

from __future__ import annotations

import hashlib
import io
import json
import re
import zipfile
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from verifier.drivers import Image
from verifier.errors import PluginError
from verifier.registry._source import PluginSource, check_name, read_file

__all__ = ["MAX_BUNDLE_BYTES", "bundle_bytes", "read_bundle"]

MAX_BUNDLE_BYTES = 512 << 20
MAX_MEMBERS = 256
FORMAT = 1

_EPOCH = (1980, 1, 1, 0, 0, 0)
_TARGET = re.compile(r"[a-z0-9][a-z0-9_-]{0,39}\Z")


class _Member(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)
    sha256: str
    bytes: int = Field(ge=0)


class _Index(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)
    format: int
    label: str
    digest: str
    members: dict[str, _Member] = Field(max_length=MAX_MEMBERS)


def bundle_bytes(source: PluginSource) -> bytes:
    """The bundle's file. Equal plugins give equal bytes."""
    members = {f"source/{name}": data for name, data in source.files.items()}
    members |= {f"image/{target}": image.data for target, image in source.images.items()}
    index = {
        "format": FORMAT,
        "label": source.label,
        "digest": source.digest,
        "members": {name: {"sha256": _sha256(data), "bytes": len(data)} for name, data in sorted(members.items())},
    }
    members["index.json"] = (json.dumps(index, indent=1, sort_keys=True) + "\n").encode()
    if source.signature is not None:
        members["signature"] = source.signature
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        for name, data in sorted(members.items()):
            info = zipfile.ZipInfo(name, _EPOCH)
            info.create_system = 3
            info.external_attr = 0o100644 << 16
            archive.writestr(info, data)
    return file.getvalue()


def read_bundle(path: Path) -> PluginSource:
    """Reads a bundle once and checks every byte against its index.

    Raises PluginError: too large, not an archive, a member that the index does not list or that differs from it, a
    name with a path in it, a link; ManifestError. The signature is checked by the trust, not here.
    """
    members = _members(read_file(path, MAX_BUNDLE_BYTES), str(path))
    index = _index(members.pop("index.json", b""), str(path))
    signature = members.pop("signature", None)
    if set(members) != set(index.members):
        odd = sorted(set(members) ^ set(index.members))[0]
        raise PluginError(f"{path}: {odd} is not both in the archive and in its index")
    files, images = {}, {}
    for name, data in members.items():
        if _sha256(data) != index.members[name].sha256:
            raise PluginError(f"{path}: {name} is corrupt: its SHA-256 is not the index's")
        kind, _, rest = name.partition("/")
        if kind == "source":
            check_name(rest, str(path))
            files[rest] = data
        elif kind == "image" and _TARGET.match(rest):
            images[rest] = Image(rest, data, _sha256(data))
        else:
            raise PluginError(f"{path}: {name!r} is no name of a bundle's member")
    source = PluginSource.of_files(files, images, origin=str(path.absolute()), signature=signature)
    if (source.label, source.digest) != (index.label, index.digest):
        raise PluginError(
            f"{path}: the index says {index.label} {index.digest}, it holds {source.label} {source.digest}"
        )
    return source


def _members(data: bytes, where: str) -> dict[str, bytes]:
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            infos = archive.infolist()
            if len(infos) > MAX_MEMBERS:
                raise PluginError(f"{where}: {len(infos)} members, the limit is {MAX_MEMBERS}")
            members: dict[str, bytes] = {}
            for info in infos:
                if info.compress_type != zipfile.ZIP_STORED or info.flag_bits & 1 or info.file_size > len(data):
                    raise PluginError(
                        f"{where}: {info.filename!r} is compressed, encrypted or larger than the bundle"
                    )
                if info.filename in members:
                    raise PluginError(f"{where}: {info.filename!r} is there twice")
                members[info.filename] = archive.read(info)
    except (zipfile.BadZipFile, EOFError, NotImplementedError, OSError, ValueError) as error:
        raise PluginError(f"{where}: not a bundle: {error}") from None
    return members


def _index(data: bytes, where: str) -> _Index:
    try:
        index = _Index.model_validate_json(data)
    except ValidationError as error:
        first: Any = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        raise PluginError(f"{where}: index.json: {place}: {first['msg']}") from None
    if index.format != FORMAT:
        raise PluginError(f"{where}: format {index.format}, this daemon reads {FORMAT}")
    return index


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
