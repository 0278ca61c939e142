"""What comes through a channel is a message of its schema, or an error that its reader knows."""

import socket
from multiprocessing.connection import Connection

import msgspec
import pytest

from verifier.channel import Channel


class Number(msgspec.Struct, tag=1, array_like=True):
    value: int


class Text(msgspec.Struct, tag=2, array_like=True):
    text: str


@pytest.fixture
def ends():
    ours, theirs = (Connection(end.detach()) for end in socket.socketpair())
    yield Channel(ours, Number | Text | None), theirs
    ours.close()
    theirs.close()


def test_messages_come_as_they_were_sent(ends):
    channel, other = ends
    back = Channel(other, Number | Text | None)
    for message in (Number(2**64 - 1), Text("ok"), None):
        back.send(message)
        assert channel.receive() == message


DEEP = b"\x91" * 10_000 + b"\x01"


@pytest.mark.parametrize(
    "rubbish",
    [
        b"",
        b"\xc1",
        b"\x92\x01",
        b"\x92\x03\x01",
        b"\x92\x01\xa1a",
        b"\x92\x02\xa1\xff",
        b"\x92\x01\x01\x00",
        DEEP,
        b"\x93\x01\x01" + DEEP,  # behind the fields, where a newer version's would be skipped
    ],
    ids=["empty", "no type", "cut short", "no such tag", "type", "no UTF-8", "more behind", "deep", "deep behind"],
)
def test_rubbish_is_an_error_of_decoding_and_the_next_message_is_well(ends, rubbish):
    channel, other = ends
    other.send_bytes(rubbish)
    with pytest.raises(msgspec.DecodeError):
        channel.receive()
    Channel(other, None).send(Number(3))
    assert channel.receive() == Number(3)


def test_the_other_end_is_gone(ends):
    channel, other = ends
    other.close()
    with pytest.raises(EOFError):
        channel.receive()
    with pytest.raises(OSError, match="Broken pipe"):
        channel.send(Number(1))
