"""Whatever is sent to whichever method of a running daemon: an answer or a refusal, never a fault of the daemon.

Every method of every service takes its share. UNKNOWN and INTERNAL say that the daemon did not foresee something,
UNAVAILABLE that a device was lost over it: none of them may come of what a caller sends. 100,000 messages:

    pytest -m long tests/fuzz/test_fuzz_rpcs.py
"""

from __future__ import annotations

import random
from collections import Counter
from types import SimpleNamespace

import grpc
import pytest
from _daemon_process import PARITY, assert_right, digests, parity_request
from _messages import messages, wires
from google.protobuf.message_factory import GetMessageClass
from grpc_health.v1 import health_pb2
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st

from verifier.config import load_settings
from verifier.daemon import Daemon
from verifier.v1 import admin_pb2, admin_pb2_grpc, cipher_pb2, cipher_pb2_grpc
from verifier.v1 import verifier_pb2 as pb
from verifier.v1 import verifier_pb2_grpc as rpc

TIMEOUT_S = 120
SEED = 20260
NEVER = {grpc.StatusCode.UNKNOWN, grpc.StatusCode.INTERNAL, grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DATA_LOSS}
NEVER_NUMBERS = {code.value[0] for code in NEVER}

NAMES = ("", "parity", "parity@1.0.0", "parity@9.9.9", "parity@1.0.0#1", "none", "aes")
WORDS = (*NAMES, "/", ".", "../..", "\0", "a" * 5000)
SERVICES = [
    pb.DESCRIPTOR.services_by_name["Verifier"],
    cipher_pb2.DESCRIPTOR.services_by_name["CipherService"],
    admin_pb2.DESCRIPTOR.services_by_name["PluginAdmin"],
    health_pb2.DESCRIPTOR.services_by_name["Health"],
]
METHODS = {f"/{service.full_name}/{method.name}": method for service in SERVICES for method in service.methods}
# Of each method's messages by strategies; each is sent damaged in so many ways too.
EACH, DAMAGED = 8, 2
EACH_LONG, DAMAGED_LONG = -(-100_000 // (2 * len(METHODS) * 20)), 19


def good(name: str, key: int):
    """A request of the method's kind that is served, or would be."""
    data = digests(5, seed=1).tobytes()
    offsets = b"".join((32 * end).to_bytes(4, "little") for end in range(6))
    scheme = pb.Scheme(plugin="parity", input_kind=pb.INPUT_KIND_DIGEST)
    cipher = cipher_pb2.CipherScheme(
        algorithm=cipher_pb2.CIPHER_ALGORITHM_AES,
        mode=cipher_pb2.CIPHER_MODE_CTR,
        direction=cipher_pb2.DIRECTION_ENCRYPT,
        counter_format=cipher_pb2.COUNTER_FORMAT_FULL_BLOCK,
    )
    return {
        "Verify": pb.VerifyRequest(request_id=1, items=5, scheme=scheme, input=pb.Column(data=data)),
        "VerifyStream": pb.VerifyRequest(request_id=1, items=5, scheme=scheme, input=pb.Column(data=data)),
        "Digest": pb.DigestRequest(items=5, hash=pb.HASH_SM3, input=pb.Column(data=data, offsets=offsets)),
        "RegisterKeys": pb.RegisterKeysRequest(
            algorithm=pb.ALGORITHM_SM2, key_encoding=pb.KEY_ENCODING_RAW_XY, items=2, keys=pb.Column(data=bytes(128))
        ),
        "ReleaseKeys": pb.ReleaseKeysRequest(key_set=1),
        "CreateKey": cipher_pb2.CreateKeyRequest(algorithm=cipher_pb2.CIPHER_ALGORITHM_AES, key=bytes(16)),
        "DeleteKey": cipher_pb2.DeleteKeyRequest(key=key + 1),
        "Transform": cipher_pb2.TransformRequest(
            items=1, scheme=cipher, keys=[key], data=pb.Column(data=bytes(100)), iv=pb.Column(data=bytes(16))
        ),
        "TransformStream": cipher_pb2.TransformStreamRequest(
            begin=cipher_pb2.TransformBegin(scheme=cipher, key=key, iv=bytes(16))
        ),
        "Load": admin_pb2.LoadPluginRequest(plugin=str(PARITY), keep_inactive=True),
        "Unload": admin_pb2.UnloadPluginRequest(plugin="parity@9.9.9", timeout_s=0.1),
    }.get(name) or GetMessageClass(METHODS_BY_NAME[name].input_type)()


METHODS_BY_NAME = {method.name: method for method in METHODS.values()}


@pytest.fixture(scope="module", params=[1, 2], ids=["itself", "front-ends"])
def daemon(tmp_path_factory, request):
    """A daemon with the toy, a hash and a cipher, by itself and behind front ends, which read requests in another
    way; `channel(method)` is the one that serves a method."""
    folder = tmp_path_factory.mktemp("fuzzed")
    configuration = load_settings(
        overrides={
            "server": {
                "listen": ["127.0.0.1:0"],
                "max_items": 4096,
                "max_batch_bytes": 1 << 20,
                "processes": request.param,
            },
            "health": {"listen": []},
            "metrics": {"listen": ""},
            "admin": {"listen": [f"unix:{folder}/admin.sock"]},
            "plugins": {
                "load": [str(PARITY), "sm3", "aes"],
                "trust": "any",
                "cache_folder": str(tmp_path_factory.getbasetemp() / "images"),
                "drain_timeout_s": 0.2,
                "keep_previous_s": 0.2,
            },
            "devices": {"use": ["cpu"]},
            "scheduling": {"measure": False},
            "log": {"level": "error"},
        }
    )
    with (
        Daemon(configuration) as running,
        grpc.insecure_channel(running.addresses[0]) as work,
        grpc.insecure_channel(f"unix:{folder}/admin.sock") as admin,
    ):
        create = cipher_pb2.CreateKeyRequest(algorithm=cipher_pb2.CIPHER_ALGORITHM_AES, key=bytes(range(16)))
        key = cipher_pb2_grpc.CipherServiceStub(work).CreateKey(create, timeout=TIMEOUT_S).key
        yield SimpleNamespace(
            running=running,
            key=key,
            stub=rpc.VerifierStub(work),
            admin=admin_pb2_grpc.PluginAdminStub(admin),
            channel=lambda method: admin if "PluginAdmin" in method else work,
        )


def one(channel: grpc.Channel, method: str, data: bytes) -> grpc.StatusCode:
    """Sends bytes as they are, and gives the call's status."""
    try:
        if method.endswith("Watch"):  # never ends by itself
            watching = channel.unary_stream(method)(data, timeout=TIMEOUT_S)
            next(watching)
            watching.cancel()
        else:
            channel.unary_unary(method)(data, timeout=TIMEOUT_S)
    except grpc.RpcError as error:
        return error.code()
    return grpc.StatusCode.OK


def several(channel: grpc.Channel, method: str, data: list[bytes]) -> grpc.StatusCode:
    """The same for a stream, whose answers may bear a failure of their own."""
    answer = GetMessageClass(METHODS[method].output_type)
    try:
        for raw in channel.stream_stream(method)(iter(data), timeout=TIMEOUT_S):
            message = answer.FromString(raw)
            if "failure" in answer.DESCRIPTOR.fields_by_name:
                assert message.failure.code not in NEVER_NUMBERS, message.failure
    except grpc.RpcError as error:
        return error.code()
    return grpc.StatusCode.OK


def damaged(data: bytes, generator: random.Random) -> bytes:
    """With some bytes changed, left out, doubled or put in."""
    changed = bytearray(data or b"\0")
    for _ in range(generator.choice((1, 1, 1, 2, 3))):
        place = generator.randrange(len(changed) + 1)
        length = generator.choice((1, 1, 4, 32))
        kind = generator.choice((0, 0, 0, 1, 2, 3))
        if kind == 0 and place < len(changed):
            changed[place] ^= 1 << generator.randrange(8)
        elif kind == 1:
            del changed[place : place + length]
        elif kind == 2:
            changed[place:place] = changed[place : place + length]
        else:
            changed[place:place] = generator.randbytes(length)
    return bytes(changed)


def fuzz(daemon, method: str, examples: int, damages: int) -> None:
    found: Counter[str] = Counter()
    channel = daemon.channel(method)
    wire = wires(good(METHODS[method].name, daemon.key), WORDS)

    def attempt(code: grpc.StatusCode, sent: object) -> None:
        found[code.name] += 1
        assert code not in NEVER, f"{code} of {method} for {sent!r}"

    @seed(SEED)
    @settings(max_examples=examples, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(st.data())
    def run(data) -> None:
        generator = random.Random(data.draw(st.integers(0, (1 << 32) - 1)))
        streams = METHODS[method].client_streaming
        drawn = data.draw(st.lists(wire, min_size=1, max_size=4)) if streams else [data.draw(wire)]
        for number in range(1 + damages):
            sent = [damaged(part, generator) for part in drawn] if number else drawn
            attempt(several(channel, method, sent) if streams else one(channel, method, sent[0]), sent)

    run()
    # Shown with -s, or where the test failed.
    print(f"{method}: {dict(found)}")


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.rpartition("/")[2])
def test_some(daemon, method):
    fuzz(daemon, method, EACH, DAMAGED)


@pytest.mark.long
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.rpartition("/")[2])
def test_a_hundred_thousand(daemon, method):
    fuzz(daemon, method, EACH_LONG, DAMAGED_LONG)


def test_good_requests_are_served_at_the_end(daemon):
    """After all that: the plugin comes back if the calls took it away, answers rightly, and nothing is left over."""
    daemon.admin.Load(admin_pb2.LoadPluginRequest(plugin=str(PARITY), force=True), timeout=TIMEOUT_S)
    data = digests(100, seed=9)
    assert_right(daemon.stub.Verify(parity_request(data), timeout=TIMEOUT_S), data)
    assert daemon.running.core.scheduler.held() == {}


@pytest.mark.parametrize("kind", [cipher_pb2.TransformRequest, admin_pb2.LoadPluginRequest])
def test_every_field_is_made(kind):
    """A field that no strategy fills would never be fuzzed."""
    filled = set()

    @settings(max_examples=50, deadline=None, database=None, derandomize=True)
    @given(messages(kind.DESCRIPTOR, WORDS))
    def look(message) -> None:
        filled.update(field.name for field, _ in message.ListFields())

    look()
    assert filled == set(kind.DESCRIPTOR.fields_by_name)
