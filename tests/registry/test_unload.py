"""Leases, unloading, and what may not be loaded: nothing is freed under a batch."""

from __future__ import annotations

import dataclasses
import re
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from _asking import WAIT_S, Gate, served_by, state
from _waiting import until

from verifier.errors import (
    ConflictError,
    ManifestError,
    NotFoundError,
    NotServedError,
    PluginError,
)
from verifier.model import Batch, Code, Column
from verifier.registry import Registry, State


def test_a_lease_checks_its_key(registry, make):
    registry.load(make("p"))
    key = registry.resolve("verify", "PARITY").key({})
    for wrong in ({"parameters": (9,)}, {"parameters": (1, 1)}, {"operation": "verify"}, {"plugin": "sm2"}):
        with pytest.raises(NotServedError):
            registry.lease(dataclasses.replace(key, **wrong))
    assert registry.index()[-1].leases == 0


def test_a_lease_keeps_its_instance_over_a_swap(registry, make):
    old = registry.load(make("old"))
    key = registry.resolve("verify", "PARITY").key({})
    lease = registry.lease(key)
    new = registry.load(make("new", version="1.1.0"))
    registry.confirm("parity")
    assert state(registry, old.label) is State.DRAINING
    batch = Batch(key, 1, (Column(np.array([2], np.uint8), 1),))
    (result,) = lease.workers[0].run(lease.instance.id, lease.operation_index, key, [batch]).result(WAIT_S)
    assert (lease.instance.label, result.codes.tolist()) == (old.label, [Code.VALID])
    with registry.lease(key) as second:
        assert second.instance.label == new.label
    lease.release()
    lease.release()  # once too often does no harm
    until(lambda: state(registry, old.label) is State.UNLOADED, "the old instance is freed")


def test_unload_of_one_version_leaves_the_load_of_another(registry, make, monkeypatch):
    registry.load(make("old"))
    with monkeypatch.context() as patch, ThreadPoolExecutor(1) as pool:
        gate = Gate(registry, patch)
        loading = pool.submit(registry.load, make("new", version="1.1.0"))
        gate.wait()
        registry.unload("parity@1.0.0")
        gate.open.set()
        assert loading.result(WAIT_S).active


def test_unload_of_a_plugin_gives_up_every_load_of_it(registry, make, monkeypatch):
    registry.load(make("old"))
    with monkeypatch.context() as patch, ThreadPoolExecutor(1) as pool:
        gate = Gate(registry, patch)
        loading = pool.submit(registry.load, make("new", version="1.1.0"))
        gate.wait()
        registry.unload("parity")
        gate.open.set()
        with pytest.raises(ConflictError):
            loading.result(WAIT_S)
    with pytest.raises(NotServedError):
        registry.resolve("verify", "PARITY")


def test_a_lease_may_come_back_after_the_end(fleet, options, make):
    registry = Registry(fleet, options)
    status = registry.load(make("p"))
    lease = registry.lease(registry.resolve("verify", "PARITY").key({}))
    registry.unload("parity")
    registry.close()
    lease.release()
    for worker in fleet.workers:
        worker.unload(status.id)


def test_unload_while_loading(registry, fleet, make, monkeypatch):
    gate = Gate(registry, monkeypatch)
    with ThreadPoolExecutor(2) as pool:
        loading = pool.submit(registry.load, make("p"))
        gate.wait()
        assert registry.unload("parity@1.0.0").state is State.SELFTEST
        waiting = pool.submit(registry.unload, "parity@1.0.0", wait=True)
        gate.open.set()
        with pytest.raises(ConflictError, match="unload of parity"):
            loading.result(WAIT_S)
        assert waiting.result(WAIT_S).state is State.FAILED
    assert not any(worker.instances for worker in fleet.workers)


def test_unload_waits_for_leases(registry, make):
    registry.load(make("p"))
    lease = registry.lease(registry.resolve("verify", "PARITY").key({}))
    status = registry.unload("parity")
    assert (status.state, status.leases) == (State.DRAINING, 1)
    with pytest.raises(NotServedError):
        registry.resolve("verify", "PARITY")
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(registry.unload, "parity", wait=True)
        lease.release()
        assert waiting.result(WAIT_S).state is State.UNLOADED


def test_unload_waits_until_memory_is_free(registry, fleet, make):
    registry.load(make("p"))
    assert all(worker.instances for worker in fleet.workers)
    assert registry.unload("parity", wait=True).state is State.UNLOADED
    assert not any(worker.instances for worker in fleet.workers)


def test_a_lease_that_stays_out_is_never_freed_by_force(registry, fleet, make):
    status = registry.load(make("p"))
    lease = registry.lease(registry.resolve("verify", "PARITY").key({}))
    stuck = registry.unload("parity", wait=True, timeout_s=0.01)
    assert (stuck.state, stuck.reason) == (State.DRAINING_STUCK, "leases still out: 1")
    assert all(status.generation in worker.instances for worker in fleet.workers)
    lease.release()
    until(lambda: state(registry, status.label) is State.UNLOADED, "it is freed after all")


def test_unload_is_idempotent(registry, make):
    registry.load(make("p"))
    assert [registry.unload("parity", wait=True).state for _ in range(3)] == ["UNLOADED"] * 3
    with pytest.raises(NotFoundError, match="sm9 is not known here"):
        registry.unload("sm9")


def test_load_after_unload(registry, make):
    folder = make("p")
    registry.load(folder)
    registry.unload("parity")
    loaded = registry.load(folder)
    assert served_by(registry) == loaded.label


def test_another_interface_needs_another_name(registry, make):
    def more(text):
        return text.replace(
            'input_kind = ["MESSAGE", "DIGEST"]', 'input_kind = ["MESSAGE", "DIGEST"]\nlow_s = ["REQUIRE"]'
        )

    old = registry.load(make("old"))
    with pytest.raises(PluginError, match=r"verify/PARITY has other columns or parameters than parity@1\.0\.0#"):
        registry.load(make("new", version="1.1.0", manifest=more))
    assert served_by(registry) == old.label
    renamed = make("renamed", manifest=lambda text: more(text).replace('name = "parity"', 'name = "parity2"'))
    new = registry.load(renamed)
    assert served_by(registry, "") == new.label  # the newest activation serves the algorithm
    registry.unload("parity2", wait=True)
    assert served_by(registry, "") == old.label


def test_wrong_abi(registry, make):
    with pytest.raises(ManifestError, match=r"abi: 7, this daemon has 1"):
        registry.load(make("p", manifest=lambda text: re.sub("(?m)^abi = 1", "abi = 7", text)))
    assert registry.index()[-1].state is State.FAILED


def test_wrong_abi_of_the_source(registry, make):
    folder = make(
        "p",
        source=lambda text: re.sub(
            r"(?m)^PLUGIN_INFO\(.*", "EXPORT const PluginInfo plugin_info = {9, 304, 0, 0, 0};", text
        ),
    )
    with pytest.raises(PluginError, match="built for ABI 9"):
        registry.load(folder)


def test_a_source_without_plugin_info(registry, make):
    with pytest.raises(PluginError, match="PLUGIN_INFO is missing"):
        registry.load(make("p", source=lambda text: re.sub(r"(?m)^PLUGIN_INFO\(.*", "", text)))


def test_a_stage_that_the_source_lacks(registry, make):
    with pytest.raises(PluginError, match="parity_missing"):
        registry.load(make("p", manifest=lambda text: text.replace('"parity_sum", ', '"parity_missing", ')))
