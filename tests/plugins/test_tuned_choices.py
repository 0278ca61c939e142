"""Every variant, and every value of a tunable that matters on a CPU, that tuning may choose: known answers, edges and
the items that leave the fast formulas, on the CPU's field and on the GPU's.

Values that matter on GPUs alone are threads and windows; NVRTC compiles them here, and `-m gpu` runs them.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from _answers import EMULATED, PLUGINS, BuiltPlugin
from _sm2_cases import Item, edges, exceptional

from verifier.drivers import list_devices
from verifier.drivers.build import build_image, kernel_usage
from verifier.manifest import DEFAULT, Choice, kind_of, load_manifest
from verifier.model import Code
from verifier.registry import PluginSource, Registry, RegistryOptions, common_folder
from verifier.workers import Fleet

CURVES = ("sm2", "ecdsa")
FLAGS = {"host": ("-O1",), "emulated": EMULATED}


def choices(name: str, target: str) -> Iterator[Choice]:
    """Every choice but the default that the search tries: variants, and each value with a variant that it is for.
    Those with a provider have tests of their own (PLACES)."""
    manifest, kind = load_manifest(PLUGINS / name), kind_of(target)
    for variant, described in manifest.variants.items():
        if kind in described.targets and described.provider is None:
            yield Choice(variant)
    for tunable, described in manifest.tunables.items():
        if described.measured and kind in described.targets:
            for value in described.values:
                yield manifest.choice((described.variants or (DEFAULT,))[0], {tunable: value})


def check(plugin: BuiltPlugin, items: list[Item]) -> None:
    columns = {
        "input": [item.digest for item in items],
        "signature": [item.signature for item in items],
        "key": [item.key_bytes for item in items],
    }
    codes = plugin.run("verify", "SM2", columns).codes
    wrong = [(i.name, Code(code).name) for i, code in zip(items, codes, strict=True) if code != i.code]
    assert wrong == []


def test_the_paper_s_algorithm_on_the_gpu_s_field():
    plugin = BuiltPlugin("sm2", EMULATED, Choice("paper"))
    assert plugin.check_known_answers("verify") > 150
    check(plugin, [*edges(), *exceptional()[::5]])


@pytest.mark.long
@pytest.mark.parametrize("place", FLAGS)
@pytest.mark.parametrize(
    ("name", "choice"),
    [pytest.param(name, c, id=f"{name} {c.text}") for name in CURVES for c in choices(name, "x86-64-v3")],
)
def test_every_choice_on_a_cpu(name, choice, place):
    plugin = BuiltPlugin(name, FLAGS[place], choice)
    assert plugin.check_known_answers("verify") > 150
    if name == "sm2":
        check(plugin, [*edges(), *exceptional()])
    else:
        assert plugin.check_known_answers("recover") > 50


@pytest.mark.long
@pytest.mark.parametrize("target", ["sm_80", "sm_90", "sm_100"])
@pytest.mark.parametrize("variant", ["paper", "paper_fermat", "paper_separate"])
def test_the_paper_s_variants_compile_for_gpus(variant, target, image_cache):
    source = PluginSource.read(PLUGINS / "sm2", common_folder())
    start, macros = source.manifest.build(Choice(variant), target)
    image = build_image(source.reached(start), start, target, {**macros, "KEY_SLOTS": 16}, cache=image_cache)
    (usage,) = (kernel for kernel in kernel_usage(image.log) if kernel.name == "sm2_verify")
    assert usage.registers <= 128  # 512 threads on a multiprocessor
    assert usage.spill_stores < 256  # bytes a thread: paper_separate spills 192 on sm_100, the others 56 or less


@pytest.fixture(scope="module")
def image_cache(tmp_path_factory):
    return tmp_path_factory.mktemp("images")


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("name", "choice"),
    [pytest.param(name, c, id=f"{name} {c.text}") for name in CURVES for c in choices(name, "sm_90")],
)
def test_every_choice_on_a_gpu(name, choice):
    gpus = [device.id for device in list_devices() if device.kind == "cuda"]
    if not gpus:
        pytest.skip("there is no GPU")
    fleet = Fleet(gpus[:1])
    fleet.start()
    registry = Registry(fleet, RegistryOptions(trust="any", tuned=False))
    try:
        registry.load(PLUGINS / name, variant=choice.variant, tunables=dict(choice.tunables))  # gives every answer
    finally:
        registry.close()
        fleet.close()
