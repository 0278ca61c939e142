"""Which plugins may load: those whose digest a lock file lists, and bundles that a configured key has signed."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from verifier.errors import ConfigError, TrustError
from verifier.registry._folders import LOCK_NAME, shipped_folder
from verifier.registry._options import RegistryOptions
from verifier.registry._source import PluginSource

__all__ = ["Trust", "lock_text", "read_lock", "sign", "write_lock"]

_SIGNED = b"verifier bundle 1\n"
_HEADER = """\
# Plugins that may load: name@version and the SHA-256 of their canonical listing. A bundle's digest covers its images
# too and so differs from its folder's. Written by `verifier plugin lock`.
"""


class Trust:
    """Decides about plugins. Lock files are read anew each time, so that a line added to one counts at once."""

    def __init__(self, options: RegistryOptions) -> None:
        """Raises ConfigError where a key file is not an Ed25519 public key, or a lock file is not one."""
        self._any = options.trust == "any"
        self._lock_files = options.lock_files
        self._keys = {path: _public_key(path) for path in options.public_keys}
        for path in self._lock_files:
            read_lock(path)

    def check(self, source: PluginSource) -> str:
        """Why the plugin may load. Raises TrustError with the command that would allow it."""
        if self._any:
            return "anything is trusted"
        for path in (*self._lock_files, shipped_folder() / LOCK_NAME):
            if path.exists() and source.digest in read_lock(path).get(source.label, ()):
                return f"listed in {path}"
        for path, key in self._keys.items():
            if source.signature is not None and _verifies(key, source):
                return f"signed by {path}"
        raise TrustError(self._refusal(source))

    def _refusal(self, source: PluginSource) -> str:
        locks = ", ".join(map(str, self._lock_files)) or "none configured"
        keys = ", ".join(map(str, self._keys)) or "none configured"
        signed = "not signed" if source.signature is None else f"signed by none of the configured keys ({keys})"
        lock = self._lock_files[0] if self._lock_files else "LOCK_FILE"
        setting = "" if self._lock_files else ", and LOCK_FILE in the daemon's plugins.lock_files"
        return (
            f"{source.label} with digest {source.digest} from {source.origin} is not in a lock file ({locks}) and "
            f"{signed}. To allow these bytes: verifier plugin lock {source.origin} --lock-file {lock}{setting}"
        )


def sign(source: PluginSource, key: Ed25519PrivateKey) -> PluginSource:
    """The plugin with the key's signature over its canonical listing."""
    signature = key.sign(_SIGNED + source.listing())
    return PluginSource(source.manifest, source.files, source.images, source.origin, signature)


def read_lock(path: Path) -> dict[str, tuple[str, ...]]:
    """name@version to digests. Raises ConfigError naming the file and the key."""
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigError(f"lock file {path}: {error}") from None
    if set(data) != {"plugins"} or not isinstance(data["plugins"], dict):
        raise ConfigError(f"lock file {path}: it must have one table, [plugins]")
    locked = {}
    for label, digests in data["plugins"].items():
        if not isinstance(digests, list) or not all(_is_digest(digest) for digest in digests):
            raise ConfigError(f"lock file {path}: {label}: must be a list of SHA-256 digests")
        locked[label] = tuple(digests)
    return locked


def lock_text(locked: Mapping[str, Iterable[str]]) -> str:
    """A lock file, sorted."""
    lines = [
        f'"{label}" = [\n' + "".join(f'    "{digest}",\n' for digest in sorted(set(digests))) + "]\n"
        for label, digests in sorted(locked.items())
    ]
    return _HEADER + "\n[plugins]\n" + "".join(lines)


def write_lock(path: Path, sources: Sequence[PluginSource], *, replace: bool = False) -> None:
    """Adds the plugins' digests to a lock file; `replace` forgets what it listed before. Written by rename."""
    locked = dict(read_lock(path)) if path.exists() and not replace else {}
    for source in sources:
        locked[source.label] = (*locked.get(source.label, ()), source.digest)
    scratch = path.with_name(f".{path.name}.new")
    scratch.write_text(lock_text(locked), encoding="utf-8")
    scratch.replace(path)


def _is_digest(value: object) -> bool:
    return isinstance(value, str) and len(value) == 64 and set(value) <= set("0123456789abcdef")


def _public_key(path: Path) -> Ed25519PublicKey:
    try:
        key = serialization.load_pem_public_key(path.read_bytes())
    except (OSError, ValueError) as error:
        raise ConfigError(f"public key {path}: {error}") from None
    if not isinstance(key, Ed25519PublicKey):
        raise ConfigError(f"public key {path}: not an Ed25519 key")
    return key


def _verifies(key: Ed25519PublicKey, source: PluginSource) -> bool:
    try:
        key.verify(source.signature or b"", _SIGNED + source.listing())
    except InvalidSignature:
        return False
    return True
