"""Variants and tunables: chosen at load, part of what an instance is, refused by name where there is no such one."""

from __future__ import annotations

from pathlib import Path

import pytest
from _asking import served_by

from verifier.drivers.build import host_target
from verifier.errors import ManifestError, PluginError, SelfTestError
from verifier.manifest import Choice, load_manifest, parse_manifest
from verifier.registry import PluginSource, Registry, common_folder, shipped_folder
from verifier.registry._images import Build

SHIPPED = [path.parent for path in sorted(shipped_folder().glob("*/plugin.toml"))]


def builds(registry: Registry) -> set[str]:
    (instance,) = registry.active()
    return {build.choice.text for build in instance.builds.values()}


def test_a_load_takes_the_variant_and_the_tunables(registry, make):
    status = registry.load(make("p"), variant="wide_groups")
    assert status.builds == {"cpu:0": "wide_groups", "cpu:1": "wide_groups"}
    assert served_by(registry) == status.label
    status = registry.load(make("q"), tunables={"GROUP": "2"}, force=True)
    assert status.builds == {"cpu:0": "default GROUP=2", "cpu:1": "default GROUP=2"}


def test_another_choice_is_another_image(make):
    source = PluginSource.read(make("p"), common_folder())
    assert Build(host_target()).inputs(source.manifest) == ("parity.cu", {"VALID_PARITY": 0, "GROUP": 4})
    wide = Build(host_target(), source.manifest.choice("wide_groups"))
    assert wide.inputs(source.manifest)[1]["GROUP"] == 8
    asked = Build(host_target(), source.manifest.choice("wide_groups", {"GROUP": 2}))
    assert asked.inputs(source.manifest)[1]["GROUP"] == 2  # what was asked for stands above the variant
    assert [b.is_default(source.manifest) for b in (Build(host_target()), wide, asked)] == [True, False, False]


def test_unknown_names_and_values_are_refused_with_what_there_is(registry, make):
    folder = make("p")
    with pytest.raises(ManifestError, match=r"parity@1\.0\.0: variant tall: there is none; it has default, wide_gr"):
        registry.load(folder, variant="tall")
    with pytest.raises(ManifestError, match="tunable SIZE: there is none; it has GROUP"):
        registry.load(folder, tunables={"SIZE": 2})
    with pytest.raises(ManifestError, match="tunable GROUP: 3 is not one of 2, 4, 8"):
        registry.load(folder, tunables={"GROUP": 3})
    assert registry.active() == []


def test_the_gate_asks_the_chosen_build(registry, make):
    wrong = lambda text: text + "\n[variants.wrong]\ndefines = { VALID_PARITY = 1 }\n"  # noqa: E731
    folder = make(
        "p",
        manifest=lambda text: (
            wrong(text.split("[[operations]]")[0])
            + "\n[[operations]]"
            + "[[operations]]".join(text.split("[[operations]]")[1:])
        ),
    )
    with pytest.raises(SelfTestError):
        registry.load(folder, variant="wrong")
    registry.load(folder)


def test_what_serves_is_replaced_by_another_choice_with_force_only(registry, make):
    folder = make("p")
    first = registry.load(folder)
    assert registry.load(folder).label == first.label
    with pytest.raises(PluginError, match="serves as default, not as wide_groups: load it with force"):
        registry.load(folder, variant="wide_groups")
    second = registry.load(folder, variant="wide_groups", force=True)
    assert second.label != first.label
    assert registry.load(folder, variant="wide_groups").label == second.label
    registry.reload("parity")
    assert builds(registry) == {"wide_groups"}  # a reload keeps the choice
    assert registry.rollback("parity").builds["cpu:0"] == "wide_groups"


def test_settings_choose_where_the_load_does_not(fleet, make, options):
    import dataclasses

    registry = Registry(fleet, dataclasses.replace(options, choices={"parity": ("wide_groups", {"GROUP": 2})}))
    try:
        assert set(registry.load(make("p")).builds.values()) == {"wide_groups GROUP=2"}
        assert set(registry.load(make("q"), variant="default", force=True).builds.values()) == {"default"}
        registry.unload("parity", wait=True)
    finally:
        registry.close()


def test_a_variant_may_have_its_own_source(registry, make):
    def manifest(text: str) -> str:
        return text.replace("[tunables]", '[variants.other]\nsource = "other.cu"\ntargets = ["cpu"]\n\n[tunables]')

    folder = make("p", manifest=manifest)
    Path(folder / "other.cu").write_text(
        (folder / "parity.cu").read_text().replace('#include "sums', '\n#include "sums')
    )
    source = PluginSource.read(folder, common_folder())
    assert "other.cu" in source.files
    assert set(source.reached("parity.cu")) == {"parity.cu", "abi.cuh", "sums.cuh"} | set(source.reached("abi.cuh"))
    choice = source.manifest.choice("other")
    assert source.manifest.build(choice, "x86-64-v3")[0] == "other.cu"
    assert source.manifest.build(choice, "sm_90")[0] == "parity.cu"  # not for GPUs: the default there
    assert set(registry.load(folder, variant="other").builds.values()) == {"other"}


MANIFEST = """
name = "p"
version = "1.0.0"
abi = 1
source = "p.cu"
{more}
[[operations]]
name = "verify"
algorithm = "P"
inputs = ["input"]
stages = ["p"]
"""


def test_a_tunable_has_defaults_by_kind_of_device():
    text = MANIFEST.format(more='[tunables.N]\nvalues = [1, 2, 3]\ndefault = { gpu = 2 }\ntargets = ["gpu"]')
    manifest = parse_manifest(text, "p")
    assert manifest.build(Choice(), "sm_90") == ("p.cu", {"N": 2})
    assert manifest.build(Choice(), "aarch64") == ("p.cu", {})
    three = manifest.choice("", {"N": "3"})
    assert manifest.build(three, "compute_80") == ("p.cu", {"N": 3})
    assert manifest.applied(three, "aarch64") == Choice()


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ("[tunables.N]\nvalues = [1]\ndefault = { gpu = 2 }", r"default\.gpu: 2 is not one of 1"),
        ('[tunables.N]\nvalues = [1]\nvariants = ["w"]', r"tunables\.N\.variants: w is not one of default"),
        ('[tunables.N]\nvalues = [1]\noperations = ["o"]', r"tunables\.N\.operations: o is not one of verify/P"),
        ("[tunables]\nN = []", "at least 1 item"),
        ("[variants.w]", "needs defines or a source"),
        ("[variants.default]\ndefines = { A = 1 }", "stands for no variant"),
    ],
)
def test_manifests_that_contradict_themselves(more, message):
    with pytest.raises(ManifestError, match=message):
        parse_manifest(MANIFEST.format(more=more), f"p {more}")


@pytest.mark.parametrize("folder", SHIPPED, ids=lambda path: path.name)
def test_shipped_defaults_are_no_variant(folder):
    """What was measured is what is built where nobody chose anything."""
    manifest = load_manifest(folder)
    for kind, target in (("gpu", "sm_90"), ("cpu", "x86-64-v3")):
        stated = {name: t.default[kind] for name, t in manifest.tunables.items() if kind in t.default}
        assert manifest.build(Choice(), target) == (manifest.source, {**manifest.defines, **stated})
