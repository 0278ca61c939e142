"""Enrolled keys by four lanes an item, which COMB_TEAM_ITEMS builds: the kernels' GPU branches on an emulated GPU."""

from __future__ import annotations

import random

import pytest
from _build import PLUGINS, Bytes
from _emulator import SM2_FEW, EmulatedPlugin
from _reference import SM2
from _sm2_cases import Item, be32, chosen, edges, public

from verifier.manifest import Operation, load_manifest
from verifier.model import Code, Column
from verifier.registry._answers import parse_answers
from verifier.registry._parameters import parameter_number

ECDSA_FEW = {"COMB_TEAM_ITEMS": 1 << 20, "KEY_SLOTS": 16, "WINDOW_KEY": 4, "WINDOW_G": 8, "GROUP": 4}
PREFIXES = {"SM2": "sm2", "ECDSA_P256": "p256", "ECDSA_SECP256K1": "secp256k1"}
EVERY_ROW = 2**32 - 1


class Threads(dict[str, int]):
    """Of a block of each stage."""

    def __missing__(self, stage: str) -> int:
        return 32 if stage.endswith("_bases") else 256 if stage.endswith("_few") or stage == "ecdsa_hash" else 128


class Enrolled(EmulatedPlugin):
    """A plugin's stages that enrol and that verify with enrolled keys, those of few items among them."""

    def __init__(self, name: str) -> None:
        self.manifest = load_manifest(PLUGINS / name)
        defines = SM2_FEW if name == "sm2" else ECDSA_FEW
        super().__init__(PLUGINS / name / f"{name}.cu", Threads(), self.manifest.state, defines)

    def stages(self, operation: Operation, few: bool = True) -> list[str]:
        """Those of an operation, with the kernel of few items where it has one."""
        verify = f"{PREFIXES[operation.algorithm]}_verify_enrolled"
        return [f"{stage}_few" if few and stage == verify else stage for stage in operation.stages]

    def operation(self, name: str, algorithm: str) -> Operation:
        """One of the manifest's."""
        found = self.manifest.operation(name, algorithm)
        assert found is not None
        return found

    def call(self, name: str, columns: list[list[bytes]], *parameters: int, few: bool = True) -> list[Bytes]:
        """The codes that each stage of an operation for SM2 leaves."""
        operation = self.operation(name, "SM2")
        made = [Column.fixed("", b"".join(values), len(values[0]), len(values)) for values in columns]
        return self.run(self.stages(operation, few), len(columns[0]), made, parameters)

    def enroll(self, slot: int, generation: int, key: bytes) -> None:
        """Has a slot serve a key."""
        raw = parameter_number("key_encoding", "RAW_XY")
        for name, tail in (("tabulate", (EVERY_ROW,)), ("enroll", ())):
            (codes,) = self.call(name, [[le32(slot, generation, *tail)], [key]], raw)
            assert codes.tolist() == [Code.VALID]

    def verify(self, items: list[Item], slots: list[bytes], few: bool = True) -> tuple[list[int], list[int]]:
        """The codes that the verifying and the finishing stage leave."""
        operation = self.operation("verify_enrolled", "SM2")
        numbers = [parameter_number(name, values[0]) for name, values in operation.parameters.items()]
        columns = [[item.digest for item in items], [item.signature for item in items], slots]
        *_, left, codes = self.call("verify_enrolled", columns, *numbers, few=few)
        return left.tolist(), codes.tolist()


def le32(*numbers: int) -> bytes:
    return b"".join(number.to_bytes(4, "little") for number in numbers)


def key_bytes(d: int) -> bytes:
    x, y = public(d)
    return be32(x) + be32(y)


@pytest.fixture(scope="module")
def sm2() -> Enrolled:
    return Enrolled("sm2")


def test_known_answers(sm2):
    check_known_answers(sm2, "sm2")


@pytest.mark.long  # `-m gpu` runs them on a GPU
def test_known_answers_of_ecdsa():
    check_known_answers(Enrolled("ecdsa"), "ecdsa")


def check_known_answers(plugin: Enrolled, name: str) -> None:
    seen = 0
    for group in parse_answers(plugin.manifest, (PLUGINS / name / "vectors.json").read_bytes(), name):
        operation = plugin.manifest.operations[group.operation_index]
        if operation.role == "call":
            continue
        batch, cases = group.tiled(len(group.codes))
        stages = plugin.stages(operation)
        *_, codes = plugin.run(stages, batch.items, batch.inputs, group.key.parameters, group.key.constant)
        assert (codes == group.codes[cases]).all(), (operation.id, group.ids)
        seen += len(codes) if operation.name == "verify_enrolled" else 0
    assert seen > 50


def test_random_items_are_decided_by_the_team_itself(sm2):
    sm2.enroll(1, 50, key_bytes(0xD1CE))
    generator = random.Random("enrolled team")
    items = [chosen(f"{i}", 0xD1CE, *(generator.randrange(1, SM2.n) for _ in range(2))) for i in range(61)]
    wrong = [chosen(f"{i}", 0xD1CF, *(generator.randrange(1, SM2.n) for _ in range(2))) for i in range(60)]
    mixed = [item for pair in zip(items, wrong, strict=False) for item in pair] + items[-1:]
    left, codes = sm2.verify(mixed, [le32(1, 50)] * len(mixed))
    expected = [Code.VALID if i % 2 == 0 else Code.INVALID for i in range(len(mixed))]
    assert left == expected
    assert codes == expected


@pytest.mark.parametrize("count", [1, 7, 8, 9, 33])
def test_batches_that_end_within_a_warp(sm2, count):
    sm2.enroll(2, 50, key_bytes(77))
    items = [chosen(f"{count} {i}", 77, 5 + i, 1000 + i) for i in range(count)]
    assert sm2.verify(items, [le32(2, 50)] * count)[0] == [Code.VALID] * count


@pytest.mark.parametrize("few", [True, False])
def test_edges_and_exceptions(sm2, few):
    """Keys that are small multiples of G, whose table is G's own: equal, opposite and infinite sums."""
    slot, base = 3, 60 + 10 * few
    sm2.enroll(slot, base, key_bytes(0xD1CE))
    items = [item for item in edges() if item.key == public(0xD1CE)]
    assert sm2.verify(items, [le32(slot, base)] * len(items), few)[1] == [item.code for item in items]
    for generation, d in enumerate((1, 2, 3, -1), base + 1):
        sm2.enroll(slot, generation, key_bytes(d))
        pairs = [(s, t) for s in (1, 2, 15, 16, 255, 256) for t in (1, 3, s + 1, -s, 2 * s + 1)]
        items = [chosen(f"Q is {d} G, s {s}, t {t}", d, s, t % SM2.n) for s, t in pairs if s != t]
        assert sm2.verify(items, [le32(slot, generation)] * len(items), few)[1] == [item.code for item in items]


def test_open_items_are_left_to_the_finishing_stage(sm2):
    sm2.enroll(4, 50, key_bytes(5))
    items = [chosen("infinity", 5, -5 * 9 % SM2.n, 9), chosen("plain", 5, 77, 78)]
    left, codes = sm2.verify(items, [le32(4, 50)] * 2)
    assert left == [Code.RETRY, Code.VALID]
    assert codes == [Code.INVALID, Code.VALID]


def test_items_that_are_decided_keep_their_codes(sm2):
    sm2.enroll(5, 50, key_bytes(5))
    plain = chosen("plain", 5, 77, 78)
    slots = [le32(5, 50), le32(5, 49), le32(1 << 30, 1), le32(6, 0)]
    left, _ = sm2.verify([plain] * 4, slots)
    assert left == [Code.VALID, Code.KEY_INDEX, Code.KEY_INDEX, Code.KEY_INDEX]
