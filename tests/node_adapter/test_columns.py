import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from node_adapter.client import pack
from node_adapter.client._columns import take, unique
from node_adapter.errors import RequestError


def values_of(column):
    if column.offsets is None:
        return [row.tobytes() for row in column.data.reshape(column.items, column.stride)]
    return [column.data[a:b].tobytes() for a, b in itertools.pairwise(column.offsets.tolist())]


def test_equal_bytes_in_every_form_give_one_column():
    values = [bytes([i] * 4) for i in range(7)]
    array = np.frombuffer(b"".join(values), np.uint8)
    for form in (values, b"".join(values), memoryview(b"".join(values)), array, array.reshape(7, 4)):
        column = pack("x", form, 4)
        assert (column.items, column.stride, column.offsets) == (7, 4, None)
        assert values_of(column) == values


def test_a_list_of_other_lengths_gets_offsets():
    values = [b"", b"abc", b"abcd"]
    column = pack("x", values, 4)
    assert values_of(column) == values


def test_rows_without_a_fixed_width_get_offsets():
    column = pack("x", np.arange(6, dtype=np.uint8).reshape(2, 3), None)
    assert values_of(column) == [b"\0\1\2", b"\3\4\5"]


@pytest.mark.parametrize(
    ("values", "width", "items", "text"),
    [
        (b"abcde", 4, None, "5 bytes are not a multiple of the encoding's 4"),
        (b"abcd", None, None, "vary in width"),
        (np.zeros((2, 5), np.uint8), 4, None, "rows of 5 bytes; the encoding takes 4"),
        (np.zeros(4, np.int64), 4, None, "int64"),
        (np.zeros((1, 1, 4), np.uint8), 4, None, "3 dimensions"),
        (["text"], None, None, "must hold bytes"),
        ([memoryview(np.zeros(4, np.uint32))], None, None, "must hold bytes: its values have 4 elements, 16 bytes"),
        ([memoryview(np.zeros(2, np.uint16))], 4, None, "must hold bytes: its values have 2 elements, 4 bytes"),
        ([b"abcd"], 4, 2, "1 values, but the batch has 2 items"),
    ],
)
def test_values_that_are_no_column(values, width, items, text):
    with pytest.raises(RequestError, match=text) as caught:
        pack("keys", values, width, items)
    assert caught.value.field == "keys"


def test_a_cut_starts_its_offsets_at_zero():
    column = pack("x", [b"a", b"bc", b"", b"def"], None)
    cut = column.cut(1, 4)
    assert cut.data == b"bcdef"
    assert np.frombuffer(cut.offsets, "<u4").tolist() == [0, 2, 2, 5]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.binary(max_size=3), st.binary(min_size=2, max_size=2)), min_size=1, max_size=40))
def test_unique_keeps_every_item_and_no_equal_two(items):
    columns = [pack("a", [a for a, _ in items], None), pack("b", [b for _, b in items], 2)]
    distinct = unique(columns)
    if distinct is None:
        assert len(set(items)) == len(items)
        return
    kept, inverse = distinct
    pairs = list(zip(*map(values_of, kept), strict=True))
    assert len(pairs) == len(set(items))
    assert [pairs[i] for i in inverse] == items


def test_take_reorders_variable_values():
    column = pack("x", [b"a", b"bc", b"", b"def"], None)
    assert values_of(take(column, np.array([3, 0, 2, 3]))) == [b"def", b"a", b"", b"def"]


def test_lengths_that_add_up_to_those_of_the_encoding_are_not_taken_for_them():
    values = [b"abc", b"defgh", b"ijkl"]
    column = pack("x", values, 4)
    assert column.offsets.tolist() == [0, 3, 8, 12]
    assert values_of(column) == values
