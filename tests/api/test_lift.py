"""Columns lifted out of a request's bytes: what protobuf would have read, whatever the bytes are."""

from __future__ import annotations

import numpy as np
import pytest
from google.protobuf.message import DecodeError
from hypothesis import given, settings
from hypothesis import strategies as st

from verifier.api._lift import KINDS, lift
from verifier.v1 import verifier_pb2 as pb

VERIFY = KINDS["Verify"]
WALKED, PARSED = 0, 1 << 30  # from how many bytes on a message is walked
ways = st.sampled_from((WALKED, PARSED))

columns = st.builds(
    pb.Column,
    data=st.binary(max_size=300),
    offsets=st.binary(max_size=40),
    shared_data=st.one_of(st.none(), st.builds(pb.SharedBytes, region=st.integers(0, (1 << 64) - 1))),
)
requests = st.builds(
    pb.VerifyRequest,
    request_id=st.integers(0, (1 << 64) - 1),
    items=st.integers(0, (1 << 32) - 1),
    scheme=st.one_of(st.none(), st.builds(pb.Scheme, plugin=st.text(max_size=10), sm2_user_id=st.binary(max_size=9))),
    input=st.one_of(st.none(), columns),
    signature=st.one_of(st.none(), columns),
    key=st.one_of(st.none(), columns),
    key_table=st.binary(max_size=200),
)


def whole(lifted) -> pb.VerifyRequest:
    """The request that a lifted one stands for."""
    message = pb.VerifyRequest()
    message.CopyFrom(lifted.message)
    for name, given_column in lifted.columns.items():
        column = getattr(message, name)
        assert not column.data
        assert not column.offsets
        column.SetInParent()
        column.data, column.offsets = bytes(given_column.data), bytes(given_column.offsets)
    return message


@settings(max_examples=100, deadline=None)
@given(requests, ways)
def test_it_reads_what_protobuf_reads(request, walk_from):
    data = request.SerializeToString()
    lifted = lift(VERIFY, data, walk_from)
    assert whole(lifted) == request
    assert lifted.items == request.items
    for name, column in lifted.columns.items():
        assert bytes(getattr(lifted, name).data) == getattr(request, name).data == bytes(column.data)


@settings(max_examples=100, deadline=None)
@given(st.lists(requests, min_size=2, max_size=3), ways)
def test_messages_put_together_are_merged(parts, walk_from):
    """Fields that come twice: protobuf says what that means."""
    data = b"".join(part.SerializeToString() for part in parts)
    assert whole(lift(VERIFY, data, walk_from)) == pb.VerifyRequest.FromString(data)


@settings(max_examples=200, deadline=None)
@given(requests, ways, st.data())
def test_bytes_that_are_damaged_are_refused_as_protobuf_refuses_them(request, walk_from, data):
    damaged = bytearray(request.SerializeToString() or b"\0")
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(damaged) - 1))
        damaged[at] = data.draw(st.integers(0, 255))
    damaged = bytes(damaged[: data.draw(st.integers(0, len(damaged)))])
    try:
        expected = pb.VerifyRequest.FromString(damaged)
    except DecodeError:
        with pytest.raises(DecodeError):
            lift(VERIFY, damaged, walk_from)
        return
    assert whole(lift(VERIFY, damaged, walk_from)) == expected


def test_large_columns_are_views_of_the_bytes_that_came():
    data = pb.VerifyRequest(items=1, input=pb.Column(data=bytes(1 << 20))).SerializeToString()
    lifted = lift(VERIFY, data)
    base = np.frombuffer(data, np.uint8).__array_interface__["data"][0]
    at = np.frombuffer(lifted.input.data, np.uint8).__array_interface__["data"][0]
    assert base <= at <= base + len(data) - (1 << 20)
    assert len(lifted.message.SerializeToString()) < 10
