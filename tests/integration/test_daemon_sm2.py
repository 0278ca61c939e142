"""SM2 and digests through the daemon: every known answer, keys by index, and Recover."""

from __future__ import annotations

import grpc
import numpy as np
import pytest
from _daemon_process import DaemonProcess, bits
from _known_answers import codes_of, groups, number

from verifier.model import Code
from verifier.v1 import verifier_pb2 as pb

TIMEOUT_S = 120
SM2 = groups("sm2", "verify")
DIGESTS = [group for plugin in ("sm3", "keccak", "sha256") for group in groups(plugin, "digest")]


@pytest.fixture(scope="module")
def chain(tmp_path_factory):
    """A daemon with the plugins of a permissioned chain. Images are built once a machine, not once a test."""
    made = DaemonProcess(tmp_path_factory.mktemp("chain"), ["sm2", "sm3", "keccak", "sha256"], cache=None)
    yield made
    made.stop()


@pytest.mark.parametrize("group", SM2, ids=lambda group: group.name)
def test_known_answers(chain, group):
    answer = chain.stub.Verify(group.verify_request(), timeout=TIMEOUT_S)
    ids = [case["id"] for case in group.data["cases"]]
    assert dict(zip(ids, codes_of(answer), strict=True)) == dict(zip(ids, group.codes, strict=True))
    assert bits(answer.decided, group.items).all()


def test_known_answers_all_at_once_on_a_stream(chain):
    requests = [group.verify_request(i) for i, group in enumerate(SM2)]
    answers = {a.request_id: a for a in chain.stub.VerifyStream(iter(requests), timeout=TIMEOUT_S)}
    assert [codes_of(answers[i]) for i in range(len(SM2))] == [group.codes for group in SM2]


@pytest.mark.parametrize("group", DIGESTS, ids=lambda group: group.name)
def test_digests(chain, group):
    request = pb.DigestRequest(
        items=group.items, hash=number("hash", group.data["algorithm"]), input=group.column("input")
    )
    answer = chain.stub.Digest(request, timeout=TIMEOUT_S)
    expected = b"".join(bytes.fromhex(case["outputs"]["digest"]) for case in group.data["cases"])
    assert answer.digests == expected
    assert bits(answer.decided, group.items).all()


@pytest.fixture(scope="module")
def raw():
    """A group with raw keys that has a valid case and, among its keys, good ones only."""
    return next(
        group
        for group in SM2
        if group.parameters["key_encoding"] == "RAW_XY" and group.codes.count(Code.VALID) > 2 and group.column("key")
    )


def _indexed(group, rows, indices, **keys):
    request = group.verify_request()
    request.scheme.key_encoding = pb.KEY_ENCODING_INDEX
    request.items = len(rows)
    for name in ("input", "signature"):
        values = [group.values(name)[row] for row in rows]
        offsets = np.cumsum([0, *map(len, values)]).astype("<u4")
        getattr(request, name).CopyFrom(pb.Column(data=b"".join(values), offsets=offsets.tobytes()))
    request.key.CopyFrom(pb.Column(data=np.array(indices, "<u4").tobytes()))
    for name, value in keys.items():
        setattr(request, name, value)
    return request


def _plain_rows(group):
    """Rows whose key has its proper length and whose code is plain."""
    return [
        row
        for row, (key, code) in enumerate(zip(group.values("key"), group.codes, strict=True))
        if len(key) == 64 and code in (Code.VALID, Code.INVALID)
    ]


def test_keys_by_index_into_a_table(chain, raw):
    rows = _plain_rows(raw)
    table = b"".join(raw.values("key")[row] for row in rows)
    indices = list(range(len(rows)))
    codes = [raw.codes[row] for row in rows]
    assert codes_of(chain.stub.Verify(_indexed(raw, rows, indices, key_table=table), timeout=TIMEOUT_S)) == codes
    indices[1] = len(rows)
    codes[1] = Code.KEY_INDEX
    answer = chain.stub.Verify(_indexed(raw, rows, indices, key_table=table), timeout=TIMEOUT_S)
    assert codes_of(answer) == codes, "a bad index is that item's problem alone"


def test_registered_keys(chain, raw):
    rows = _plain_rows(raw)
    keys = [raw.values("key")[row] for row in rows]
    off_curve = bytes(63) + b"\x01"
    request = pb.RegisterKeysRequest(
        algorithm=pb.ALGORITHM_SM2,
        key_encoding=pb.KEY_ENCODING_RAW_XY,
        items=len(keys) + 1,
        keys=pb.Column(data=b"".join([*keys, off_curve])),
    )
    registered = chain.stub.RegisterKeys(request, timeout=TIMEOUT_S)
    assert registered.items == len(keys) + 1
    assert np.frombuffer(registered.problems.index, "<u4").tolist() == [len(keys)]
    assert list(registered.problems.code) == [pb.PROBLEM_CODE_KEY_NOT_ON_CURVE]
    indices = [*range(len(rows) - 1), len(keys)]
    codes = [*(raw.codes[row] for row in rows[:-1]), Code.KEY_INDEX]
    request = _indexed(raw, rows, indices, key_set=registered.key_set)
    assert codes_of(chain.stub.Verify(request, timeout=TIMEOUT_S)) == codes
    chain.stub.ReleaseKeys(pb.ReleaseKeysRequest(key_set=registered.key_set), timeout=TIMEOUT_S)
    with pytest.raises(grpc.RpcError) as gone:
        chain.stub.Verify(request, timeout=TIMEOUT_S)
    assert gone.value.code() is grpc.StatusCode.NOT_FOUND


def test_user_ids(chain):
    """Absent means the default; empty and long ones are values of their own; above 8191 bytes is refused."""
    group = next(g for g in SM2 if g.parameters["input_kind"] == "MESSAGE" and g.data.get("constant"))
    default = b"1234567812345678"
    for user_id in (None, b"", b"x" * 8191):
        request = group.verify_request()
        request.scheme.ClearField("sm2_user_id")
        if user_id is not None:
            request.scheme.sm2_user_id = user_id
        codes = codes_of(chain.stub.Verify(request, timeout=TIMEOUT_S))
        if bytes.fromhex(group.data["constant"]) == (default if user_id is None else user_id):
            assert codes == group.codes
        elif Code.VALID in group.codes:
            assert Code.VALID not in codes, "signatures are made for one user id"
    request.scheme.sm2_user_id = b"x" * 8192
    with pytest.raises(grpc.RpcError) as caught:
        chain.stub.Verify(request, timeout=TIMEOUT_S)
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert caught.value.details() == "scheme.sm2_user_id: 8192 bytes; the limit is 8191"


@pytest.mark.long
def test_recover(tmp_path):
    """Every known answer of ECDSA recovery, with and without addresses."""
    daemon = DaemonProcess(tmp_path, ["ecdsa"], cache=None)
    try:
        for group in groups("ecdsa", "recover"):
            wanted = group.parameters["address_hash"]
            request = pb.RecoverRequest(
                items=group.items,
                scheme=group.scheme(),
                input=group.column("input"),
                signature=group.column("signature"),
                address_hash=number("address_hash", wanted),
            )
            answer = daemon.stub.Recover(request, timeout=TIMEOUT_S)
            assert codes_of(answer) == group.codes
            for row, case in enumerate(group.data["cases"]):
                outputs = case.get("outputs", {})
                if "key" in outputs:
                    assert answer.keys[64 * row : 64 * row + 64].hex() == outputs["key"]
                if "address" in outputs and wanted != "UNSPECIFIED":
                    assert answer.addresses[20 * row : 20 * row + 20].hex() == outputs["address"]
            assert bool(answer.addresses) == (wanted != "UNSPECIFIED")
    finally:
        daemon.stop()
