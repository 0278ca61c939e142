"""What `verifier plugin tune` found: the fastest choice of a plugin on a device, kept in one file beside the images.

An entry holds for the device's name and target, its driver, the compiler, the libraries that the plugin names and
that are at hand, and the plugin's digest. Where any of them changes it counts no more.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import structlog
from pydantic import BaseModel, ConfigDict, ValidationError

from verifier.drivers import DeviceInfo
from verifier.drivers.build import compiler_id, default_cache_folder
from verifier.errors import VerifierError
from verifier.manifest import Choice
from verifier.registry._images import Build, at_hand
from verifier.registry._providers import offers
from verifier.registry._source import PluginSource

__all__ = ["FILE_NAME", "Tuned", "TuningFile", "tuned_choice"]

FILE_NAME = "tuning.json"
MAX_ENTRIES = 1000  # the newest so many are kept

_log = structlog.get_logger(__name__)


class Tuned(BaseModel):
    """A choice and what it was chosen by: items a second of each operation, with it and with the default."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    device: str
    target: str
    driver: str
    compiler: str
    plugin: str  # name@version
    digest: str
    variant: str
    tunables: dict[str, int | str]
    rates: dict[str, float]
    default_rates: dict[str, float]
    tuned_at: str

    @property
    def key(self) -> tuple[str, ...]:
        """What an entry holds for."""
        return self.device, self.target, self.driver, self.compiler, self.digest


def key_of(device: DeviceInfo, source: PluginSource) -> tuple[str, ...]:
    """What an entry for this plugin on this device must hold for. Without a compiler only what one left counts."""
    try:
        compiler = compiler_id(device.target)
    except VerifierError:
        compiler = ""
    found = [offer.library.label for offer in offers(source.manifest, device.target) if offer.library is not None]
    compiler = ", ".join(filter(None, (compiler, *found)))
    return device.name, device.target, device.driver_version, compiler, source.digest


class _Entries(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)
    entries: tuple[Tuned, ...] = ()


@dataclass(frozen=True)
class TuningFile:
    """The file. Several processes may share it: it is replaced by a rename, and the last one wins."""

    path: Path = field(default_factory=lambda: default_cache_folder() / FILE_NAME)

    @classmethod
    def of_cache(cls, cache: Path | None) -> TuningFile:
        """The one beside the images of `cache`; None: the user's cache folder."""
        return cls((cache or default_cache_folder()) / FILE_NAME)

    def entries(self) -> tuple[Tuned, ...]:
        """Oldest first. A file that cannot be read counts as empty: it only costs speed."""
        try:
            return _Entries.model_validate_json(self.path.read_bytes()).entries
        except FileNotFoundError:
            return ()
        except (OSError, ValidationError) as error:
            _log.warning("tuning file cannot be read", path=str(self.path), error=str(error))
            return ()

    def find(self, device: DeviceInfo, source: PluginSource) -> Tuned | None:
        """What holds for the plugin on the device, or None."""
        key = key_of(device, source)
        return next((entry for entry in reversed(self.entries()) if entry.key == key), None)

    def put(self, tuned: Tuned) -> None:
        """Adds an entry in the place of one for the same. Raises OSError."""
        kept = [entry for entry in self.entries() if entry.key != tuned.key]
        text = _Entries(entries=(*kept, tuned)[-MAX_ENTRIES:]).model_dump(mode="json")
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor, scratch = tempfile.mkstemp(dir=self.path.parent, prefix=".tuning-")
        try:
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                json.dump(text, file, indent=1)
            Path(scratch).replace(self.path)
        except BaseException:
            Path(scratch).unlink(missing_ok=True)
            raise


def tuned_choice(
    device: DeviceInfo, source: PluginSource, cache: Path | None, fixed: Mapping[str, int | str]
) -> Choice | None:
    """The choice that was found fastest on the device, with the tunables that are `fixed` as they are, or None.

    Where its image is not at hand it does not count: a load never compiles for it.
    """
    found = TuningFile.of_cache(cache).find(device, source)
    if found is None:
        return None
    try:
        choice = source.manifest.choice(found.variant, {**found.tunables, **fixed})
        if at_hand(source, Build.of(source.manifest, device.target, choice), cache) is not None:
            return choice
        why = "it is not built here: `verifier plugin tune` builds it"
    except VerifierError as error:
        why = str(error)
    _log.info("tuned choice not used", plugin=source.label, device=device.id, choice=found.variant, reason=why)
    return None
