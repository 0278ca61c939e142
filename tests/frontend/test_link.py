"""A front end's calls: who reads the core's answers, and that each gets its own."""

from __future__ import annotations

import socket
import threading
from multiprocessing.connection import Connection

import numpy as np
import pytest
from _waiting import until

from verifier import cores, reader
from verifier.api import KINDS
from verifier.api._lift import lift
from verifier.channel import Channel
from verifier.frontend._link import Link
from verifier.frontend._messages import Answer, Call, FromCore, FromFrontEnd
from verifier.reader import Reader
from verifier.v1 import verifier_pb2 as pb

WAIT_S = 60.0


class Core:
    """The other end of the socket, and the link."""

    def __init__(self):
        ours, theirs = (Connection(end.detach()) for end in socket.socketpair())
        self.channel, self._theirs = Channel(ours, FromFrontEnd), Channel(theirs, FromCore)
        self.takers = []
        self.reader = Reader("core", self._theirs, self._take, lambda *_: None)
        self.link = Link(self._theirs, self.reader, np.zeros(1 << 16, np.uint8))
        self.reader.start()

    def _take(self, answer):
        self.takers.append(threading.current_thread().name)
        self.link.take(answer)

    def call(self):
        request = lift(KINDS["Verify"], pb.VerifyRequest(items=1).SerializeToString())
        return self.link.submit("Verify", request, deadline=None, caller="")

    def answer(self):
        call = self.channel.receive()
        assert isinstance(call, Call)
        self.channel.send(Answer(call.id, 0, body=b"%d" % call.id))

    def close(self):
        self.channel.close()
        self.reader.close()
        self._theirs.close()


@pytest.fixture
def core(monkeypatch):
    monkeypatch.setattr(cores, "SPARE_CORES", 1)
    monkeypatch.setattr(reader, "_LOOKED_S", WAIT_S)
    made = Core()
    yield made
    made.close()


def test_who_waits_for_the_only_answer_reads_it(core):
    sent = core.call()
    answered = threading.Timer(0.05, core.answer)
    answered.start()
    assert sent.future.result(WAIT_S) == b"0"
    assert sent.answer() == b"0"
    assert core.takers == [threading.current_thread().name]
    answered.join()


def test_the_thread_reads_where_several_answers_are_due(core):
    calls = [core.call() for _ in range(3)]
    answered = threading.Timer(0.05, lambda: [core.answer() for _ in range(3)])
    answered.start()
    assert [sent.future.result(WAIT_S) for sent in calls[:2]] == [b"0", b"1"]
    answered.join()
    until(lambda: len(core.takers) == 3)
    assert core.takers[:2] == ["core", "core"]
    assert calls[2].answer() == b"2"
