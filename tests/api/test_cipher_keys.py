"""The keys that the daemon holds: who may use them, and that nothing is left of a deleted one."""

from __future__ import annotations

import contextlib
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import grpc
import numpy as np
import pytest

from verifier._settings import CipherSettings
from verifier.api import CipherKeys, status_of
from verifier.errors import CapacityError, KeyInUseError, NotFoundError, RequestError
from verifier.model import BatchKey
from verifier.secret import Secret

KEY = bytes(range(1, 17))
OTHER = bytes(range(101, 133))


@pytest.fixture
def keys():
    return CipherKeys(8)


def memory(keys: CipherKeys) -> bytes:
    return keys._rows.tobytes()


def test_a_key_is_given_out_under_its_handle(keys):
    handle = keys.create("AES", KEY, "")
    with keys.use("key", [handle], "AES", "") as held:
        assert bytes(held.constant()) == KEY
        column = held.column(np.zeros(3, np.uint32))
        assert (column.data.tobytes(), column.stride) == (3 * KEY, 16)


def test_handles_are_random_and_fit_every_language(keys):
    handles = [keys.create("AES", KEY, "") for _ in range(8)]
    assert len({handle >> 20 for handle in handles}) == 8
    assert all(0 < handle < 1 << 63 for handle in handles)


def test_nothing_is_left_of_a_deleted_key(keys):
    handle = keys.create("AES", KEY, "")
    with keys.use("key", [handle], "AES", "") as held:
        constant, column = held.constant(), held.column(np.zeros(2, np.uint32))
        assert KEY in memory(keys)  # or what follows would say nothing
    assert not column.data.any()
    assert bytes(constant) == KEY
    keys.delete(handle, "")
    assert bytes(constant) == bytes(16)
    assert not any(memory(keys))
    with pytest.raises(NotFoundError, match=rf"key: {handle} is no key of this caller"):
        keys.use("key", [handle], "AES", "")
    with pytest.raises(NotFoundError, match=str(handle)):
        keys.delete(handle, "")


def test_nothing_is_left_when_the_daemon_stops(keys):
    handle = keys.create("AES", KEY, "")
    with keys.use("key", [handle], "AES", "") as held:
        constant = held.constant()
    keys.close()
    assert bytes(constant) == bytes(16)
    assert not any(memory(keys))


def test_keys_of_several_sizes_are_one_column(keys):
    handles = [keys.create("AES", KEY, ""), keys.create("AES", OTHER, "")]
    with keys.use("keys", handles, "AES", "") as held:
        column = held.column(np.array([1, 0, 0, 1], np.uint32))
        assert column.offsets.tolist() == [0, 32, 48, 64, 96]
        assert column.data.tobytes() == OTHER + KEY + KEY + OTHER
    assert not column.data.any()


def test_deleting_waits_for_those_who_have_the_key(keys):
    handle = keys.create("AES", KEY, "")
    held = keys.use("key", [handle], "AES", "")
    constant = held.constant()
    with ThreadPoolExecutor(1) as pool:
        deletion = pool.submit(keys.delete, handle, "", 60.0)
        with contextlib.suppress(NotFoundError):
            while True:  # until the deletion has begun
                keys.use("key", [handle], "AES", "").release()
        assert not deletion.done()
        assert bytes(constant) == KEY
        held.release()
        deletion.result(60)
    assert bytes(constant) == bytes(16)


def test_deleting_gives_up_waiting_and_the_last_user_overwrites(keys):
    handle = keys.create("AES", KEY, "")
    held = keys.use("key", [handle], "AES", "")
    with pytest.raises(KeyInUseError, match=rf"{handle} takes no new calls; 1 have it") as caught:
        keys.delete(handle, "", 0.0)
    assert status_of(caught.value).code is grpc.StatusCode.FAILED_PRECONDITION
    with pytest.raises(NotFoundError):
        keys.use("key", [handle], "AES", "")
    assert KEY in memory(keys)
    held.release()
    held.release()
    assert not any(memory(keys))


def test_deleting_waits_for_its_own_key_alone(keys):
    """The row of an overwritten key may be another's, which is being deleted too, before whoever waited looks."""
    handle = keys.create("AES", KEY, "")
    held = keys.use("key", [handle], "AES", "")
    with ThreadPoolExecutor(1) as pool:
        deleting = pool.submit(keys.delete, handle, "", 20.0)
        while not keys._leaving.any():
            time.sleep(0.001)
        with keys._changed:  # so that it does not look before all this has happened
            held.release()
            second = keys.create("AES", KEY, "")
            later = keys.use("key", [second], "AES", "")
            with pytest.raises(KeyInUseError):
                keys.delete(second, "", 0)
        assert second & 0xFFFFF == handle & 0xFFFFF
        try:
            deleting.result(10)
        finally:
            later.release()


def test_another_callers_key_is_not_found(keys):
    handle = keys.create("AES", KEY, "node-1")
    for owner in ("node-2", ""):
        with pytest.raises(NotFoundError):
            keys.use("key", [handle], "AES", owner)
        with pytest.raises(NotFoundError):
            keys.delete(handle, owner)
    keys.create("AES", KEY, "node-2")
    with pytest.raises(NotFoundError):
        keys.use("key", [handle], "AES", "node-2")
    keys.use("key", [handle], "AES", "node-1").release()


def test_a_key_is_for_one_cipher(keys):
    handles = [keys.create("AES", KEY, ""), keys.create("SM4", KEY, "")]
    with pytest.raises(RequestError, match=rf"keys\[1\]: {handles[1]} is a key for SM4, not AES"):
        keys.use("keys", handles, "AES", "")
    keys.delete(handles[0], "", 0.0)  # nobody holds it


def test_unknown_handles_are_named(keys):
    good = keys.create("AES", KEY, "")
    for bad in (0, 7, good ^ 1 << 40, (1 << 64) - 1, good | 0xFFFFF):
        with pytest.raises(NotFoundError, match=rf"keys\[1\]: {bad} "):
            keys.use("keys", [good, bad], "AES", "")
    keys.delete(good, "", 0.0)


def test_a_full_store_says_which_setting(keys):
    handles = [keys.create("AES", KEY, "") for _ in range(8)]
    with pytest.raises(CapacityError, match=r"cipher\.max_keys"):
        keys.create("AES", KEY, "")
    keys.delete(handles[3], "")
    again = keys.create("AES", KEY, "")
    assert again != handles[3], "a row's next key has another handle"
    with pytest.raises(NotFoundError):
        keys.use("key", [handles[3]], "AES", "")


def test_a_caller_with_its_share_of_keys_leaves_room_for_others():
    keys = CipherKeys(8, 2)
    first = [keys.create("AES", KEY, "a") for _ in range(2)]
    with pytest.raises(CapacityError, match=r"this caller has 2 keys.*cipher\.max_keys_a_caller"):
        keys.create("AES", KEY, "a")
    keys.create("AES", KEY, "b")
    held = keys.use("key", first[:1], "AES", "a")
    with pytest.raises(KeyInUseError):
        keys.delete(first[0], "a", 0.0)
    with pytest.raises(CapacityError, match="this caller has 2 keys"):
        keys.create("AES", KEY, "a")  # a key that is in use yet takes room
    held.release()
    keys.create("AES", KEY, "a")


def test_whoever_has_no_keys_is_forgotten(keys):
    for number in range(100):
        keys.delete(keys.create("AES", KEY, f"caller {number}"), f"caller {number}")
    handle = keys.create("AES", KEY, "a")
    keys.delete(keys.create("AES", KEY, "a"), "a")
    assert list(keys._owner_numbers) == ["a"]
    with pytest.raises(NotFoundError):
        keys.use("key", [handle], "AES", "caller 0")
    keys.use("key", [handle], "AES", "a").release()


def test_a_caller_has_a_quarter_of_the_store_unless_it_is_told_otherwise():
    assert CipherSettings().caller_keys == 16384
    assert CipherSettings(max_keys=3).caller_keys == 1
    assert CipherSettings(max_keys_a_caller=7).caller_keys == 7


def test_many_threads_at_once(keys):
    """Keys come and go while others use theirs: what a user sees is its own key to the end."""
    wrong = []

    def work(number: int) -> None:
        key = bytes([number]) * 16
        for _ in range(200):
            handle = keys.create("AES", key, "")
            held = keys.use("key", [handle], "AES", "")
            remover = threading.Thread(target=keys.delete, args=(handle, "", 60.0))
            remover.start()
            if bytes(held.constant()) != key or held.column(np.zeros(1, np.uint32)).data.tobytes() != key:
                wrong.append(number)
            held.release()
            remover.join()

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(1, 5)))
    assert not wrong
    assert not any(memory(keys))
    assert len(keys) == 0


def test_a_secret_shows_its_length_alone():
    secret = Secret(KEY, 7)
    key = BatchKey("aes", "ctr/AES", constant=secret)
    for text in (repr(secret), str(secret), f"{secret}", repr(key)):
        assert "Secret of 16 bytes" in text
        assert "\\x01" not in text


def test_batches_merge_under_one_name():
    one, same, other = Secret(KEY, 7), Secret(KEY, 7), Secret(KEY, 8)
    assert (one == same, one == other, one == KEY) == (True, False, False)
    assert len({BatchKey("aes", "ctr/AES", constant=secret) for secret in (one, same, other)}) == 2
    one.wipe()
    assert bytes(one) == bytes(16)
    assert one == same, "a key is found in the scheduler's tables after it was overwritten too"
