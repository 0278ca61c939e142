"""Libraries that a plugin's variant for the CPU may be linked with: found, and known by their digests.

A library comes from an installed package of PyPI. Its bytes are read once: what is linked is what was compared with
the manifest's digests. So the trust in it is the plugin's own: the manifest names it, and the lock file or a
signature the manifest.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path

from verifier.drivers.build import missing_cpu_flags
from verifier.errors import PluginError, ProviderError
from verifier.manifest import Choice, Manifest, Provider, kind_of
from verifier.registry._source import PluginSource, read_file

__all__ = ["Library", "Offer", "build_files", "find_library", "offers", "usable_variants"]


@dataclass(frozen=True)
class Library:
    """An archive with one of the manifest's digests."""

    package: str
    version: str
    file: str
    data: bytes = field(repr=False)

    @property
    def label(self) -> str:
        """The package and its version."""
        return f"{self.package} {self.version}"


@dataclass(frozen=True)
class Offer:
    """A variant that has a provider: the library here, or why it is not used. `automatic`: nobody need ask for it."""

    variant: str
    library: Library | None
    automatic: bool = True
    problem: str = ""


def offers(manifest: Manifest, target: str) -> Iterator[Offer]:
    """The variants for such a device that have a provider, in the manifest's order."""
    for name, variant in manifest.variants.items():
        if variant.provider is None or kind_of(target) not in variant.targets:
            continue
        try:
            yield Offer(name, find_library(variant.provider), variant.provider.automatic)
        except ProviderError as error:
            yield Offer(name, None, variant.provider.automatic, str(error))


def usable_variants(manifest: Manifest, target: str) -> list[str]:
    """The variants for such a device, without those whose library is not at hand."""
    missing = {offer.variant for offer in offers(manifest, target) if offer.library is None}
    kind = kind_of(target)
    return [name for name, variant in manifest.variants.items() if kind in variant.targets and name not in missing]


def find_library(provider: Provider) -> Library:
    """The installed library. Raises ProviderError: no such package, another version, or a CPU that cannot run it."""
    missing = missing_cpu_flags(provider.cpu_flags)
    if missing:
        raise ProviderError(f"{provider.package}: this CPU has not {', '.join(missing)}")
    try:
        installed = metadata.distribution(provider.package)
    except metadata.PackageNotFoundError:
        raise ProviderError(f"{provider.package} is not installed: pip install 'verifier[providers]'") from None
    path = next((file.locate() for file in installed.files or () if file.name == provider.file), None)
    if path is None:
        raise ProviderError(f"{provider.package} {installed.version} has no {provider.file}")
    try:
        data = read_file(Path(str(path)))
    except PluginError as error:
        raise ProviderError(str(error)) from None
    digest = hashlib.sha256(data).hexdigest()
    for version, known in provider.sha256.items():
        if digest == known:
            return Library(provider.package, version, provider.file, data)
    raise ProviderError(
        f"{provider.package} {installed.version}: {provider.file} has the digest {digest}, which the plugin does not "
        f"name; it names those of {', '.join(provider.sha256)}"
    )


def build_files(source: PluginSource, choice: Choice, target: str) -> dict[str, bytes]:
    """The files that a choice's build for a target may see, the library that it is linked with among them.

    Raises ManifestError (no such choice), ProviderError.
    """
    start, _ = source.manifest.build(choice, target)
    files = source.reached(start)
    provider = source.manifest.provider(choice, target)
    if provider is not None:
        library = find_library(provider)
        files[library.file] = library.data
    return files
