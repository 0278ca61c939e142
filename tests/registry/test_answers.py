"""vectors.json: what it may say, and the batches that it gives."""

from __future__ import annotations

import json

import numpy as np
import pytest

from verifier.errors import ManifestError
from verifier.manifest import load_manifest
from verifier.model import Code
from verifier.registry._answers import parse_answers


@pytest.fixture
def parse(make):
    def parse(change=lambda data: None):
        folder = make("p", answers=change)
        return parse_answers(load_manifest(folder), (folder / "vectors.json").read_bytes(), "vectors.json")

    return parse


def test_columns_are_fixed_where_all_values_have_the_width(parse):
    message, salted, digest, odd, output = parse()
    assert digest.inputs[0].stride == 32
    assert digest.inputs[0].offsets is None
    for group in (message, salted, odd, output):
        assert group.inputs[0].offsets is not None
    assert (message.key.operation, message.key.parameters, message.key.constant) == ("verify/PARITY", (1,), b"")
    assert (salted.key.constant, digest.key.parameters, output.operation_index) == (b"\1", (2,), 1)


def test_expected_codes_and_outputs(parse):
    groups = parse()
    assert groups[0].codes[:3].tolist() == [Code.VALID, Code.INVALID, Code.INPUT_LENGTH]
    ((values, stated),) = groups[-1].outputs
    assert stated.all()
    assert values[3].tobytes().hex() == "0400000000000000"


@pytest.mark.parametrize("items", [1, 2, 31, 33, 100])
def test_tiling_repeats_the_cases(parse, items):
    for group in parse():
        batch, cases = group.tiled(items)
        (column,) = batch.inputs
        assert batch.items == items
        assert cases.tolist() == [i % len(group) for i in range(items)]
        for item in range(items):
            assert value(column, item) == value(group.inputs[0], item % len(group))


def value(column, item):
    if column.offsets is None:
        return column.data[item * column.stride : (item + 1) * column.stride].tobytes()
    return column.data[column.offsets[item] : column.offsets[item + 1]].tobytes()


def test_an_output_may_be_left_out(parse):
    def drop(data):
        del data["groups"][-1]["cases"][1]["outputs"]

    ((_, stated),) = parse(drop)[-1].outputs
    assert stated.tolist() == [True, False] + [True] * 5


def case(data, group=0, number=0):
    return data["groups"][group]["cases"][number]


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda d: d.update(extra=1), "extra: Extra inputs are not permitted"),
        (lambda d: case(d).update(expected="VALID"), r"groups\.0\.cases\.0\.expected: Extra inputs"),
        (lambda d: case(d).update(code="FINE"), r"groups\.0\.cases\.0\.code: .*must be the name of a decided code"),
        (lambda d: case(d).update(code="UNDECIDED"), "must be the name of a decided code"),
        (lambda d: case(d).update(code="RETRY"), "must be the name of a decided code"),
        (lambda d: case(d).update(code=1), "must be the name of a decided code"),
        (lambda d: case(d)["inputs"].update(input="xy"), r"cases\.0\.inputs\.input: .*hexadecimal"),
        (lambda d: case(d)["inputs"].update(input=7), "must be a string of hexadecimal digits"),
        (lambda d: case(d)["inputs"].update(key="00"), "one_even_byte: inputs must be input"),
        (lambda d: case(d).update(inputs={}), "one_even_byte: inputs must be input"),
        (lambda d: case(d).update(outputs={"digest": "00"}), "output digest has 1 bytes, not None"),
        (lambda d: case(d, -1)["outputs"].update(digest="00"), "output digest has 1 bytes, not 8"),
        (
            lambda d: d["groups"][0].update(algorithm="SM2"),
            r"groups\.0: the manifest has no operation verify for SM2",
        ),
        (lambda d: d["groups"][0]["parameters"].update(low_s="REQUIRE"), "the operation has no such parameter"),
        (lambda d: d["groups"][0]["parameters"].update(input_kind="HASH"), "not one of the manifest's values"),
        (lambda d: d["groups"].pop(), "digest/PARITY has no known answers"),
        (lambda d: d["groups"][0].update(cases=[]), r"groups\.0\.cases: .*at least 1"),
    ],
)
def test_refuses(parse, change, problem):
    with pytest.raises(ManifestError, match=rf"^vectors\.json: .*{problem}"):
        parse(change)


def test_refuses_what_is_not_json(make):
    with pytest.raises(ManifestError, match=r"vectors\.json: .*Invalid JSON"):
        parse_answers(load_manifest(make("p")), b"{", "vectors.json")


def test_every_group_is_whole(parse):
    for group in parse():
        assert len(group) == len(group.codes) == len(np.unique(group.ids))
        json.dumps(group.ids)
