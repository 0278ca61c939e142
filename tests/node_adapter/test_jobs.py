"""How a batch is cut: every request is one that the daemon's own reading of it accepts."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from node_adapter.client import Algorithm, InputKind, KeyEncoding, Priority, Scheme, SignatureEncoding
from node_adapter.client._jobs import Chunk, Limits, verify_job
from node_adapter.errors import RequestError
from verifier.keys import key_table, resolve
from verifier.model import Column
from verifier.v1 import verifier_pb2 as pb


def job(key_encoding, inputs, keys, **options):
    scheme = Scheme(Algorithm.SM2, InputKind.MESSAGE, SignatureEncoding.RAW_RS, key_encoding)
    signatures = bytes(64 * len(inputs))
    return verify_job(scheme, inputs, signatures, keys, priority=Priority.POOL, deduplicate=False, **options)


def limits(max_batch_bytes):
    return Limits(1 << 20, max_batch_bytes, max_batch_bytes + 65536, 65536)


def held(message, items, width):
    """Bytes of a column as the daemon counts them."""
    if message.offsets:
        return Column.variable("column", message.data, message.offsets, items).nbytes
    return Column.fixed("column", message.data, width, items).nbytes


@pytest.mark.parametrize("limit", range(4096, 4096 + 150))
def test_the_last_offset_counts(limit):
    inputs = [bytes(i % 7) for i in range(100)]
    whole = job(KeyEncoding.RAW_XY, inputs, bytes(6400))
    for chunk in whole.chunks(limits(limit), None, 1 << 30):
        request = pb.VerifyRequest.FromString(whole.request(chunk, 1).request)
        columns = ((request.input, None), (request.signature, 64), (request.key, 64))
        assert sum(held(column, chunk.items, width) for column, width in columns) <= limit


def test_a_named_key_counts_as_the_key_that_the_daemon_puts_in_its_place():
    limit, items = 1 << 16, 5000
    table = bytes(64)
    indices = np.zeros(items, np.uint32)
    whole = job(KeyEncoding.INDEX, [b"\0" * 32] * items, indices, key_table=table)
    chunks = whole.chunks(limits(limit), None, 1 << 30)
    assert sum(chunk.items for chunk in chunks) == items
    for chunk in chunks:
        request = pb.VerifyRequest.FromString(whole.request(chunk, 1).request)
        assert request.key_table == table
        _, _, key_bytes = resolve(key_table("SM2", table), indices[chunk.start : chunk.stop], limit)
        columns = ((request.input, None), (request.signature, 64))
        assert sum(held(column, chunk.items, width) for column, width in columns) + key_bytes <= limit


def test_an_item_over_the_limit_is_named():
    whole = job(KeyEncoding.RAW_XY, [b"", bytes(5000)], bytes(128))
    with pytest.raises(RequestError, match="item 1 has 5136 bytes; the daemon's limit is 4096"):
        whole.chunks(limits(4096), None, 1 << 30)


@given(
    inputs=st.lists(st.binary(max_size=300), min_size=1, max_size=40),
    cut=st.integers(0, 40),
    request_id=st.integers(0, (1 << 64) - 1),
)
def test_requests_are_written_as_protobuf_reads_them(inputs, cut, request_id):
    """Lengths about those of one and two bytes, empty values and empty columns among them."""
    items = len(inputs)
    keys = np.arange(64 * items).astype(np.uint8)
    whole = job(KeyEncoding.RAW_XY, inputs, keys)
    start = cut % items
    sent = whole.request(Chunk(start, items), request_id)
    expected = pb.VerifyRequest.FromString(whole.head)
    expected.request_id, expected.items = request_id, items - start
    expected.input.data = b"".join(inputs[start:])
    lengths = [len(value) for value in inputs[start:]]
    expected.input.offsets = np.concatenate(([0], np.cumsum(lengths))).astype("<u4").tobytes()
    expected.signature.data = bytes(64 * (items - start))
    expected.key.data = keys[64 * start :].tobytes()
    assert pb.VerifyRequest.FromString(sent.request) == expected
    assert sent.request_id == request_id
