"""Runs a plugin's operations, and its known answers."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from _build import PLUGINS, Plugin, Result, build, daemons
from _lanes import EIGHT, ONE_BY_ONE

from verifier.bench.rig import Rig
from verifier.drivers import list_devices
from verifier.drivers.build import host_target
from verifier.manifest import Choice, Manifest, load_manifest
from verifier.model import Code, Column
from verifier.registry import offers
from verifier.registry._parameters import parameter_number


class BuiltPlugin:
    """A plugin of the repository: its manifest and its library.

    Without flags the library is the one that a daemon builds, with macros beside its own; with them it is one of g++
    for any CPU.
    """

    def __init__(
        self,
        name: str,
        flags: Sequence[str] = (),
        choice: Choice | None = None,
        extra: Mapping[str, int] | None = None,
    ) -> None:
        self.manifest: Manifest = load_manifest(PLUGINS / name)
        if flags:
            source, macros = self.manifest.build(choice or Choice(), "x86-64-v3")
            defines = {key: int(value) for key, value in macros.items()}
            library = build(PLUGINS / name / source, flags=flags, defines=defines)
        else:
            library = daemons(name, choice, extra)
        self._plugin = Plugin(library, self.manifest.state)

    @property
    def plugin(self) -> Plugin:
        """The library's stages."""
        return self._plugin

    def run(
        self,
        operation: str,
        algorithm: str,
        inputs: Mapping[str, Sequence[bytes]],
        constant: bytes = b"",
        **parameters: str | int,
    ) -> Result:
        """One batch. Parameters that are not named take the manifest's first value."""
        found = self.manifest.operation(operation, algorithm)
        assert found is not None
        unknown = set(parameters) - set(found.parameters)
        assert not unknown, f"no such parameters: {unknown}"
        chosen = {name: parameters.get(name, values[0]) for name, values in found.parameters.items()}
        for name, value in chosen.items():
            assert value in found.parameters[name], f"{name} = {value} is not in the manifest"
        return self.plugin.run(
            found.stages,
            [inputs[name] for name in found.inputs],
            parameters=[parameter_number(name, value) for name, value in chosen.items()],
            constant=constant,
            outputs=[output.bytes for output in found.outputs],
        )

    def check_known_answers(self, only: str = "") -> int:
        """Runs vectors.json, or one operation's part of it, and asserts every code and output; returns the number of
        cases."""
        answers: dict[str, Any] = json.loads((PLUGINS / self.manifest.name / self.manifest.vectors).read_text())
        count = 0
        for group in answers["groups"]:
            if only not in ("", group["operation"]):
                continue
            found = self.manifest.operation(group["operation"], group["algorithm"])
            assert found is not None
            cases = group["cases"]
            inputs = {name: [bytes.fromhex(case["inputs"][name]) for case in cases] for name in found.inputs}
            result = self.run(
                group["operation"],
                group["algorithm"],
                inputs,
                bytes.fromhex(group.get("constant", "")),
                **group.get("parameters", {}),
            )
            for i, case in enumerate(cases):
                assert Code(result.codes[i]).name == case["code"], (group.get("parameters"), case["id"])
                for output, array in zip(found.outputs, result.outputs, strict=True):
                    if output.name in case.get("outputs", {}):
                        assert array[i].tobytes().hex() == case["outputs"][output.name], case["id"]
            valid = np.unpackbits(result.valid, bitorder="little")[: len(cases)]
            assert (valid == (result.codes == Code.VALID)).all()
            count += len(cases)
        return count


class DevicePlugin(BuiltPlugin):
    """A plugin of the repository on a device, through the worker's own pipeline."""

    def __init__(self, name: str, device: str, choice: Choice | None = None) -> None:
        self.rig = Rig(device, PLUGINS / name, PLUGINS / "common", choice=choice)
        self.manifest = self.rig.manifest

    @property
    def plugin(self) -> Plugin:
        pytest.skip("calls stages one by one, which needs the library itself")

    def run(
        self,
        operation: str,
        algorithm: str,
        inputs: Mapping[str, Sequence[bytes]],
        constant: bytes = b"",
        **parameters: str | int,
    ) -> Result:
        """One batch, its columns with offsets. Parameters that are not named take the manifest's first value."""
        found = self.manifest.operation(operation, algorithm)
        assert found is not None
        columns = {name: _variable(name, inputs[name]) for name in found.inputs}
        items = len(inputs[found.inputs[0]])
        slot = self.rig.fill(operation, algorithm, columns, items, parameters, constant)
        self.rig.run(slot)
        outputs = [slot.output(index).copy() for index in range(len(found.outputs))]
        return Result(slot.codes.copy(), slot.valid.copy(), slot.decided.copy(), outputs)


def _variable(name: str, values: Sequence[bytes]) -> Column:
    ends = np.cumsum([0, *map(len, values)]).astype("<u4")
    return Column.variable(name, b"".join(values), ends, len(values))


# The plugin for the CPU item by item, the same eight items at a time, the GPU's arithmetic run on the CPU, the CPU
# with a library linked in, and a GPU where there is one.
PLACES = ["host", "lanes", "emulated", "provider", pytest.param("gpu", marks=pytest.mark.gpu)]
# What the emulation finds wrong does not depend on g++'s passes, of which -O1 has twice as many.
EMULATED = ("-Og", "-DEMULATE_GPU_FIELD")


def provided(name: str) -> Choice:
    """The choice of the plugin `name` with its provider; skips the test where that cannot be used."""
    (offer,) = offers(load_manifest(PLUGINS / name), host_target())
    if offer.library is None:
        pytest.skip(offer.problem)
    return Choice(offer.variant)


def opened(name: str, place: str) -> Iterator[BuiltPlugin]:
    """The plugin `name` at one of PLACES, for a fixture to yield from."""
    if place == "provider":
        plugin = DevicePlugin(name, "cpu", provided(name))
        yield plugin
        plugin.rig.close()
        return
    if place == "emulated":
        yield BuiltPlugin(name, EMULATED)
        return
    if place != "gpu":
        yield BuiltPlugin(name, extra=ONE_BY_ONE if place == "host" else EIGHT)
        return
    if not any(device.id == "cuda:0" for device in list_devices()):
        pytest.skip("no NVIDIA GPU here")
    plugin = DevicePlugin(name, "cuda:0")
    yield plugin
    plugin.rig.close()
