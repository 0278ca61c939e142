"""Results to answers: bits, exceptional items and outputs."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from verifier.api.answers import digest_answer, problems, recover_answer, verify_answer
from verifier.api.requests import Prepared
from verifier.model import Batch, BatchKey, BatchResult, Code
from verifier.scheduling import Priority

CODES = [code.value for code in Code]


def result_of(codes, outputs=()) -> BatchResult:
    codes = np.array(codes, np.uint8)
    decided = (codes != Code.UNDECIDED) & (codes != Code.RETRY)
    return BatchResult(
        codes.size,
        np.packbits(codes == Code.VALID, bitorder="little"),
        np.packbits(decided, bitorder="little"),
        codes,
        outputs,
        "p@1.0.0#1",
        "cpu",
    )


def prepared(items, refused=(), **fields) -> Prepared:
    return Prepared(Batch(BatchKey("p", "o"), items, ()), Priority.POOL, np.array(refused, np.uint32), **fields)


def bits(data: bytes, items: int) -> list[int]:
    return np.unpackbits(np.frombuffer(data, np.uint8), count=items, bitorder="little").tolist()


@given(st.lists(st.sampled_from(CODES), min_size=1, max_size=70), st.data())
def test_an_answer_says_of_every_item_what_its_code_says(codes, data):
    refused = sorted(data.draw(st.sets(st.integers(0, len(codes) - 1))))
    answer = verify_answer(9, prepared(len(codes), refused), result_of(codes), b"")
    for item in refused:
        codes[item] = Code.KEY_INDEX
    assert (answer.request_id, answer.items, answer.served_by, answer.device) == (9, len(codes), "p@1.0.0#1", "cpu")
    assert bits(answer.valid, len(codes)) == [code == Code.VALID for code in codes]
    assert bits(answer.decided, len(codes)) == [code not in (Code.UNDECIDED, Code.RETRY) for code in codes]
    listed = dict(zip(np.frombuffer(answer.problems.index, "<u4").tolist(), answer.problems.code, strict=True))
    expected = {
        i: (0 if code == Code.RETRY else code)
        for i, code in enumerate(codes)
        if code not in (Code.VALID, Code.INVALID)
    }
    assert listed == expected
    assert list(listed) == sorted(listed)


def test_a_valid_bit_without_its_decided_bit_is_not_sent():
    result = result_of([Code.VALID] * 8)
    result.decided[:] = 0b11110000
    assert bits(verify_answer(1, prepared(8), result, b"").valid, 8) == [0, 0, 0, 0, 1, 1, 1, 1]


def test_no_problems_where_all_is_plain():
    empty = problems(np.array([Code.VALID, Code.INVALID], np.uint8))
    assert (empty.index, empty.code) == (b"", b"")


def test_keys_are_zero_where_none_was_recovered():
    outputs = (np.full((2, 64), 7, np.uint8), np.full((2, 20), 8, np.uint8))
    request = prepared(2, output_bytes=(64, 20), wants_addresses=True)
    answer = recover_answer(1, request, result_of([Code.RECOVERY_ID, Code.VALID], outputs), b"")
    assert answer.keys == bytes(64) + b"\x07" * 64
    assert answer.addresses == bytes(20) + b"\x08" * 20
    plain = recover_answer(1, prepared(2, output_bytes=(64, 20)), result_of([Code.VALID] * 2, outputs), b"")
    assert plain.addresses == b""


@pytest.mark.parametrize("make", [recover_answer, digest_answer])
def test_undetermined_batches_have_outputs_of_the_right_size(make):
    request = prepared(3, output_bytes=(32,))
    answer = make(1, request, BatchResult.undetermined(3), b"")
    assert bits(answer.decided, 3) == [0, 0, 0]
    assert (answer.keys if make is recover_answer else answer.digests) == bytes(96)


@pytest.mark.parametrize("make", [verify_answer, recover_answer, digest_answer])
def test_answers_bear_the_digest_of_the_columns(make):
    request, result = prepared(1, output_bytes=(32,)), result_of([1], (np.zeros((1, 32), np.uint8),))
    assert make(1, request, result, b"12345678").columns_digest == b"12345678"
