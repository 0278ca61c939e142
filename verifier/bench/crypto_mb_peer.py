"""crypto_mb as a peer: its own verification by its own functions, beside plugins that are linked with it."""

from __future__ import annotations

import ctypes
import functools
import tempfile
from collections.abc import Callable
from pathlib import Path

from verifier.bench.signatures import SignatureSet
from verifier.drivers._cxx import compile_library, find_compiler
from verifier.drivers.build import host_target
from verifier.errors import BuildError, DeviceUnavailableError
from verifier.manifest import load_manifest
from verifier.registry import offers, shipped_folder
from verifier.schemes import DEFAULT_SM2_USER_ID

__all__ = ["crypto_mb"]

SOURCE = Path(__file__).with_name("crypto_mb_peer.cpp")


def crypto_mb(algorithm: str, *, messages: bool) -> Callable[[SignatureSet], int] | None:
    """A function that counts valid items, one at least, or None where there is none.

    Its SM2 takes messages only, by the usual user id; its P-256 takes digests, and none that is not below the order.
    """
    if (algorithm, messages) not in (("SM2", True), ("ECDSA_P256", False)) or _library() is None:
        return None
    identity = DEFAULT_SM2_USER_ID if messages else None

    def verify(items: SignatureSet) -> int:
        library = _library()
        assert library is not None
        columns = (ctypes.c_void_p(column.ctypes.data) for column in (items.digests, items.signatures, items.keys))
        valid: int = library.verify_all(items.items, *columns, identity, len(identity or b""))
        return valid

    return verify


@functools.cache
def _library() -> ctypes.CDLL | None:
    """The archive that the plugin `sm2` would be linked with, behind a loop of C++; None without it or a compiler."""
    found = [offer.library for offer in offers(load_manifest(shipped_folder() / "sm2"), host_target())]
    if not found or found[0] is None:
        return None
    files = {SOURCE.name: SOURCE.read_bytes(), found[0].file: found[0].data}
    try:
        data, _ = compile_library(find_compiler(), files, SOURCE.name, host_target(), {})
    except (BuildError, DeviceUnavailableError):
        return None
    with tempfile.NamedTemporaryFile(prefix="verifier-peer-", suffix=".so") as file:
        file.write(data)
        file.flush()
        return ctypes.CDLL(file.name)
