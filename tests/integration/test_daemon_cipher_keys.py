"""Keys of block ciphers in the daemon: what is refused, how many there may be, and that deleted ones are gone."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from _cipher_references import cbc, hight
from _cipher_schemes import CTR, ECB, GCM, scheme_of
from _daemon_process import DaemonProcess
from _waiting import until

from node_adapter.client import CipherAlgorithm, CipherClient, CipherMode
from node_adapter.errors import CapacityError, NotServedError, RefusedError


def test_statuses(client):
    handle = client.create_key(CipherAlgorithm.AES, bytes(range(16)))
    gone = client.create_key(CipherAlgorithm.AES, bytes(16))
    client.delete_key(gone)
    with pytest.raises(RefusedError, match=rf"keys: {gone} is no key of this caller") as refused:
        client.seal(gone, GCM, b"", bytes(12))
    assert refused.value.code == "NOT_FOUND"
    with pytest.raises(RefusedError, match=rf"key: {gone} is no key") as refused:
        client.delete_key(gone)
    assert refused.value.code == "NOT_FOUND"
    with pytest.raises(NotServedError, match="verifier plugin load sm4"):
        client.create_key(CipherAlgorithm.SM4, bytes(16))
    with pytest.raises(RefusedError, match="key: 15 bytes; keys of AES have 16, 24, 32") as refused:
        client.create_key(CipherAlgorithm.AES, bytes(15))
    assert refused.value.code == "INVALID_ARGUMENT"
    with pytest.raises(RefusedError, match=rf"keys: {handle} is a key for AES, not KUZNYECHIK"):
        client.seal(handle, scheme_of(CipherAlgorithm.KUZNYECHIK, CipherMode.GCM), b"", bytes(12))
    with pytest.raises(RefusedError, match="data: item 0: 17 bytes end in a block of 1"):
        client.encrypt(handle, ECB, bytes(17))
    client.delete_key(handle)


def test_a_full_share_of_the_store_is_told_with_a_time_to_come_again(client):
    made = []

    def fill() -> None:
        while True:
            made.append(client.create_key(CipherAlgorithm.AES, bytes(16)))

    with pytest.raises(
        CapacityError, match=r"this caller has 512 keys, which is its limit \(cipher\.max_keys_a_caller\)"
    ):
        fill()
    for handle in made:
        client.delete_key(handle)
    assert len(made) > 400


def test_a_key_is_neither_logged_nor_left_in_a_worker(cipher_daemon, client):
    """The worker's memory is searched for the key's bytes after it encrypted with it in both ways."""
    key = bytes.fromhex("8f3d52c1e6a7094bb15e77d02c9a48f6")
    handle = client.create_key(CipherAlgorithm.AES, key)
    for size in (100, 100_000):
        client.seal(handle, GCM, bytes(size), bytes(12))
        client.encrypt(handle, CTR, bytes(size), bytes(16))
    client.delete_key(handle)
    with pytest.raises(RefusedError):
        client.seal(handle, GCM, b"", bytes(12))
    log = cipher_daemon.log_file.read_text()
    assert key.hex() not in log
    assert repr(key)[2:20] not in log
    (worker,) = cipher_daemon.workers()
    marker = b"these bytes are data, which may be found"
    public = client.create_key(CipherAlgorithm.AES, bytes(16))
    client.encrypt(public, CTR, marker * 100, bytes(16))
    client.delete_key(public)
    assert _found(worker, marker), "or the next assertion could not fail"
    assert not _found(worker, key)


def _found(pid: int, wanted: bytes) -> bool:
    """Whether a process has these bytes anywhere in its writable memory."""
    with Path(f"/proc/{pid}/mem").open("rb", buffering=0) as memory:
        for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
            span, mode = line.split()[:2]
            if not mode.startswith("rw") or "[vvar" in line:
                continue
            begin, end = (int(number, 16) for number in span.split("-"))
            memory.seek(begin)
            if wanted in (memory.read(end - begin) or b""):
                return True
    return False


def test_a_key_in_use_is_deleted_when_its_calls_are_done(tmp_path):
    """The device takes longer for a batch than a deletion waits, and the call is still answered."""
    gate = tmp_path / "gate"  # while it is there the batch is in flight
    held = {"call": "launch hight_cbc_encrypt", "times": 0, "held": str(gate)}
    options = ("scheduling.measure=false", "devices.batch_limit_s=60", "cipher.delete_wait_s=0.2")
    daemon = DaemonProcess(tmp_path, ["hight"], *options, devices=("fake:0",), faults=[held], cache=None)
    gate.touch()
    try:
        with CipherClient(daemon.address, timeout_s=60) as client, ThreadPoolExecutor(1) as pool:
            scheme = scheme_of(CipherAlgorithm.HIGHT, CipherMode.CBC)
            handle = client.create_key(CipherAlgorithm.HIGHT, bytes(16))
            call = pool.submit(client.encrypt, handle, scheme, bytes(1024), bytes(8))
            until(lambda: daemon.metrics().get('verifier_queue_items{plugin="hight"}'))
            with pytest.raises(NotServedError, match=rf"{handle} takes no new calls; 1 have it") as refused:
                client.delete_key(handle)
            assert refused.value.code == "FAILED_PRECONDITION"
            with pytest.raises(RefusedError, match=str(handle)):
                client.encrypt(handle, scheme, bytes(8), bytes(8))
            gate.unlink()
            assert call.result(60) == cbc(hight(bytes(16)), bytes(8), bytes(1024))
    finally:
        daemon.stop()
