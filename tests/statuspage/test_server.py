"""The page's listener: what it answers, to whom, and what it keeps out."""

from __future__ import annotations

import base64
import hashlib
import http.client
import json
import re
import socket
import threading

import pytest

from verifier.statuspage import StatusServer
from verifier.statuspage import _server as module

LOCAL = frozenset(("localhost", "127.0.0.1", "::1"))


@pytest.fixture
def serve():
    made = []

    def begin(snapshot=lambda: {"state": "serving"}, hosts=LOCAL) -> StatusServer:
        server = StatusServer(("127.0.0.1", 0), snapshot, hosts)
        server.start()
        made.append(server)
        return server

    yield begin
    for server in made:
        server.close()


def ask(server, path="/", method="GET", host="localhost"):
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
    try:
        connection.request(method, path, headers={"Host": host})
        answer = connection.getresponse()
        return answer, answer.read()
    finally:
        connection.close()


def test_the_page_runs_its_own_script_and_style_and_nothing_else(serve):
    answer, body = ask(serve())
    policy = dict(part.strip().split(" ", 1) for part in answer.headers["Content-Security-Policy"].split(";"))
    assert (
        policy["default-src"] == policy["base-uri"] == policy["form-action"] == policy["frame-ancestors"] == "'none'"
    )
    assert policy["connect-src"] == "'self'"
    page = body.decode()
    for tag in ("script", "style"):
        (text,) = re.findall(rf"<{tag}>(.*?)</{tag}>", page, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert policy[f"{tag}-src"] == f"'sha256-{digest}'"
    # Nothing that the policy would forbid anyway: no assets of others, no handlers or styles in attributes.
    assert not re.search(r"""(src|href)=["'](https?:)?//""", page)
    assert not re.search(r"\son[a-z]+=|\sstyle=|innerHTML|insertAdjacentHTML|document\.write|eval\(", page)


def test_every_answer_says_that_it_is_not_to_be_kept_or_guessed_at(serve):
    server = serve()
    for path in ("/", "/status.json", "/none"):
        headers = ask(server, path)[0].headers
        assert (headers["Cache-Control"], headers["X-Content-Type-Options"]) == ("no-store", "nosniff")
        assert "Python" not in headers["Server"]


def test_there_are_two_documents_and_two_methods(serve):
    server = serve()
    assert json.loads(ask(server, "/status.json?x=1")[1]) == {"state": "serving"}
    assert ask(server, "/../../etc/passwd")[0].status == 404
    assert ask(server, "/status.json", "POST")[0].status == 501
    answer, body = ask(server, "/", "HEAD")
    assert (answer.status, body) == (200, b"")
    assert int(answer.headers["Content-Length"]) > 1000


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1:9465", "[::1]:9465", "LOCALHOST:1"])
def test_a_local_name_is_answered(serve, host):
    assert ask(serve(), "/status.json", host=host)[0].status == 200


@pytest.mark.parametrize("host", ["evil.example", "localhost.evil.example", "127.0.0.1.evil.example:9465", ""])
def test_another_sites_name_is_refused(serve, host):
    """A page whose name was rebound to this host must not read it."""
    server = serve()
    for path in ("/", "/status.json"):
        answer, body = ask(server, path, host=host)
        assert (answer.status, b"serving" in body) == (421, False)


def test_where_any_host_may_ask_its_name_does_not_matter(serve):
    assert ask(serve(hosts=None), "/status.json", host="daemon.example")[0].status == 200


def test_however_many_look_the_daemon_is_asked_twice_a_second(serve, monkeypatch):
    monkeypatch.setattr(module, "_FRESH_S", 3600.0)
    asked = []
    server = serve(lambda: asked.append(1) or {})
    threads = [threading.Thread(target=ask, args=(server, "/status.json")) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(asked) == 1


def test_a_fault_of_the_daemon_is_not_told(serve):
    def fail():
        raise RuntimeError("secret detail")

    answer, body = ask(serve(fail), "/status.json")
    assert (answer.status, b"secret" in body) == (500, False)


def test_connections_that_hang_leave_room_and_end(serve, monkeypatch):
    monkeypatch.setattr(module._Handler, "timeout", 1.0)
    server = serve()
    hanging = [socket.create_connection(("127.0.0.1", server.port), timeout=30) for _ in range(70)]
    try:
        ends = [connection.recv(1) for connection in hanging]  # nothing was sent: each is closed
    finally:
        for connection in hanging:
            connection.close()
    assert ends == [b""] * 70
    assert ask(server, "/status.json")[0].status == 200
