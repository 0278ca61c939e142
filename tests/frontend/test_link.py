"""A front end's calls: who reads the core's answers, and that each gets its own."""

from __future__ import annotations

import socket
import threading
from multiprocessing.connection import Connection

import grpc
import numpy as np
import pytest
from _waiting import until

from verifier.api import KINDS, RefusedError
from verifier.api._lift import lift, request_digest
from verifier.channel import Channel
from verifier.frontend import _refusals
from verifier.frontend._link import Link
from verifier.frontend._messages import Answer, Call, FromCore, FromFrontEnd
from verifier.frontend._refusals import Refusals
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
        self.refused = 0
        self.link = Link(self._theirs, self.reader, np.zeros(1 << 16, np.uint8), refusals=Refusals(self._count))
        self.reader.start()

    def _take(self, answer):
        self.takers.append(threading.current_thread().name)
        self.link.take(answer)

    def _count(self):
        self.refused += 1

    def refuse(self, retry_after_s):
        call = self.channel.receive()
        code = grpc.StatusCode.RESOURCE_EXHAUSTED.value[0]
        self.channel.send(Answer(call.id, code, "full", None, retry_after_s))

    def call(self, **columns):
        request = lift(KINDS["Verify"], pb.VerifyRequest(items=1, **columns).SerializeToString())
        return self.link.submit("Verify", request, deadline=None, caller="")

    def answer(self):
        call = self.channel.receive()
        assert isinstance(call, Call)
        self.channel.send(Answer(call.id, 0, body=pb.VerifyResponse(request_id=call.id).SerializeToString()))
        return call

    def close(self):
        self.channel.close()
        self.reader.close()
        self._theirs.close()


def request_id(body):
    return pb.VerifyResponse.FromString(body).request_id


@pytest.fixture
def core(callers_read):
    made = Core()
    yield made
    made.close()


def test_who_waits_for_the_only_answer_reads_it(core):
    sent = core.call()
    answered = threading.Timer(0.05, core.answer)
    answered.start()
    assert request_id(sent.future.result(WAIT_S)) == 0
    assert core.takers == [threading.current_thread().name]
    answered.join()


def test_the_thread_reads_where_several_answers_are_due(core):
    calls = [core.call() for _ in range(3)]
    answered = threading.Timer(0.05, lambda: [core.answer() for _ in range(3)])
    answered.start()
    assert [request_id(sent.future.result(WAIT_S)) for sent in calls] == [0, 1, 2]
    answered.join()
    until(lambda: len(core.takers) == 3)
    assert core.takers[:2] == ["core", "core"]


def test_an_answer_has_the_digest_of_the_columns_that_came(core):
    column = pb.Column(data=b"abc")
    sent = core.call(input=column)
    assert core.answer().digested
    answer = pb.VerifyResponse.FromString(sent.future.result(WAIT_S))
    assert answer.columns_digest == request_digest(KINDS["Verify"], pb.VerifyRequest(items=1, input=column))


def test_what_the_core_refuses_is_refused_here_for_a_moment(core, monkeypatch):
    monkeypatch.setattr(_refusals, "_LONGEST_S", WAIT_S)
    sent = core.call()
    core.refuse(4 * WAIT_S)
    for again in (sent.future.result, core.call):
        with pytest.raises(RefusedError) as refused:
            again()
        assert refused.value.status.code is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert core.refused == 1
    assert core.link._places.taken == 0
    urgent = core.call(priority=pb.PRIORITY_CONSENSUS)
    core.answer()
    urgent.future.result(WAIT_S)


def test_where_columns_lie_in_a_clients_memory_the_digest_is_the_cores(core):
    sent = core.call(input=pb.Column(shared_data=pb.SharedBytes(region=1, bytes=32)))
    assert not core.answer().digested
    assert pb.VerifyResponse.FromString(sent.future.result(WAIT_S)).columns_digest == b""
