"""Messages as stripes, and counters over whole blocks, against plain arithmetic."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from verifier.api._cipher_stripes import Stripes, add_to_counters, compact

lengths = st.lists(st.integers(0, 70), min_size=1, max_size=12)


def data_of(sizes) -> np.ndarray:
    return (np.arange(sum(sizes)) % 251 + 1).astype(np.uint8)


@given(lengths)
def test_messages_come_back_from_their_stripes(sizes):
    stripes = Stripes.of(np.array(sizes, np.int64), 16)
    data = data_of(sizes)
    cells = stripes.fill(data)
    assert cells.shape == (sum(-(-size // 16) for size in sizes), 16)
    assert stripes.compact(cells).tobytes() == data.tobytes()
    wanted, at = [], 0
    for size in sizes:
        part = data[at : at + size].tobytes()
        wanted += [part[i : i + 16].ljust(16, b"\0") for i in range(0, size, 16)]
        at += size
    assert cells.tobytes() == b"".join(wanted)


@given(lengths)
def test_every_stripe_knows_the_block_before_it(sizes):
    stripes = Stripes.of(np.array(sizes, np.int64), 16)
    initial = np.arange(4 * len(sizes), dtype=np.uint8).reshape(-1, 4) + 200
    cells = stripes.fill(data_of(sizes))
    previous = stripes.previous(cells, initial)
    wanted, row = [], 0
    for number, size in enumerate(sizes):
        for place in range(-(-size // 16)):
            wanted.append(initial[number].tobytes() if not place else cells[row - 1, -4:].tobytes())
            row += 1
    assert [block.tobytes() for block in previous] == wanted


@given(lengths, st.sampled_from([8, 16]), st.data())
def test_counters_carry_through_the_whole_block(sizes, block, draw):
    wrap = 1 << 8 * block
    starts = draw.draw(
        st.lists(
            st.one_of(
                st.integers(0, wrap - 1),
                st.sampled_from([wrap - 1, wrap - 33, (1 << 32) - 1, (1 << 64) - 1, 255, (1 << 4 * block) - 1]),
            ),
            min_size=len(sizes),
            max_size=len(sizes),
        )
    )
    initial = np.frombuffer(b"".join((start % wrap).to_bytes(block, "big") for start in starts), np.uint8)
    stripes = Stripes.of(np.array(sizes, np.int64), 16)
    got = stripes.counters(initial.reshape(-1, block))
    wanted = [
        ((start + 32 * place) % wrap).to_bytes(block, "big")
        for start, size in zip(starts, sizes, strict=True)
        for place in range(-(-size // 16))
    ]
    assert [counter.tobytes() for counter in got] == wanted


@given(st.integers(0, (1 << 128) - 1), st.integers(0, (1 << 64) - 1))
def test_any_number_may_be_added(start, number):
    counter = np.frombuffer(start.to_bytes(16, "big"), np.uint8).reshape(1, 16)
    got = add_to_counters(counter, np.array([number], np.uint64))
    assert got.tobytes() == ((start + number) % (1 << 128)).to_bytes(16, "big")


@given(lengths, st.data())
def test_a_message_is_marked_where_one_of_its_stripes_is(sizes, draw):
    stripes = Stripes.of(np.array(sizes, np.int64), 16)
    marks = np.array(draw.draw(st.lists(st.booleans(), min_size=stripes.count, max_size=stripes.count)), np.bool_)
    wanted, row = [], 0
    for size in sizes:
        count = -(-size // 16)
        wanted.append(bool(marks[row : row + count].any()))
        row += count
    assert stripes.any_in_message(marks).tolist() == wanted


@pytest.mark.parametrize("sizes", [[0, 0], [8, 8], [3, 0, 8]])
def test_cells_are_cut_to_their_lengths(sizes):
    cells = np.arange(8 * len(sizes), dtype=np.uint8).reshape(-1, 8)
    wanted = b"".join(cells[i, :size].tobytes() for i, size in enumerate(sizes))
    assert compact(cells, np.array(sizes, np.int64)).tobytes() == wanted
