"""What is measured, by stable names.

sm2-verify-unknown          a batch of 2^20 (on the CPU less), transfers from page-locked memory included
...-sustained               the same batch after batch, two under way: its first copy is behind the other's kernels
...-kernel                  the same with the columns on the device already
sm2-verify-8192-latency     seconds from the order to the verdicts
sm2-verify-messages         the same of messages of 32 bytes, hashed there
sm2-verify-crafted          items that all leave the fast formulas: what an attacker could make of a batch
sm2-verify-enrolled         with enrolled keys (enrolled_cases.py)
...-cpu                     where it ran on the CPU

Kernels are timed by the device, the pipeline by the wall clock. A CPU works in place, so that both are one there.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

from verifier.bench.cipher_cases import CIPHERS, Cipher, measure_cipher
from verifier.bench.counts import written_counts
from verifier.bench.enrolled_cases import LARGEST, WINDOW_8, measure_enrolled
from verifier.bench.limits import Limits, tightest
from verifier.bench.peers import peers_for
from verifier.bench.records import Record
from verifier.bench.rig import Rig, Slot, columns_of
from verifier.bench.signatures import SignatureSet, make_crafted, make_signatures, sm2_hash
from verifier.drivers import DeviceInfo
from verifier.errors import SelfTestError
from verifier.model import Code, Column
from verifier.schemes import DEFAULT_SM2_USER_ID

__all__ = ["CASES", "Case", "Settings", "check_codes", "peer_records"]

ITEM_BYTES = 32 + 64 + 64
MESSAGES = "sm2-verify-messages"
CRAFTED = "sm2-verify-crafted"
PEER_ITEMS = {"gmssl": 30, "crypto_mb": 4096}
PEER_ITEMS_ELSE = 2000


@dataclass(frozen=True, slots=True)
class Settings:
    """How long to measure."""

    batch: int
    runs: int
    cipher_bytes: int
    kernels: bool = True
    pipeline: bool = True


@dataclass(frozen=True, slots=True)
class Case:
    """A family of measurements on one plugin."""

    name: str
    plugin: str
    measure: Callable[[Rig, Limits, Settings], Iterator[Record]]
    verifies: str = ""  # the algorithm of a verification: it has peers and can be swept
    provided: bool = False  # a CPU's provider does most of it: it is measured with and without
    gpu_tunables: Mapping[str, int] = field(default_factory=dict)  # what a GPU's build has that is not the default
    on_cpu: bool = True
    bulk: bool = False  # its slot holds `cipher_bytes` twice


def _suffix(info: DeviceInfo) -> str:
    return "-cpu" if info.unified else ""


def check_codes(slot: Slot, signatures: SignatureSet, what: str) -> None:
    """A rate of wrong answers is worth nothing."""
    wrong = np.flatnonzero(slot.codes != signatures.codes)
    if wrong.size:
        at = int(wrong[0])
        found, expected = Code(int(slot.codes[at])), Code(int(signatures.codes[at]))
        raise SelfTestError(f"{what}: {wrong.size} of {slot.items} wrong; item {at} is {found!r}, not {expected!r}")


def _verify(name: str, algorithm: str) -> Callable[[Rig, Limits, Settings], Iterator[Record]]:
    def measure(rig: Rig, limits: Limits, settings: Settings) -> Iterator[Record]:
        suffix = _suffix(rig.info)
        base = make_signatures(algorithm, min(settings.batch, 1 << 16), fault_share=0.01)
        link = limits.of_link(ITEM_BYTES)
        field = limits.of_field(algorithm, written_counts().get(f"{name}-unknown"))
        includes = ("parsing",) if rig.info.unified else ("transfer", "parsing")

        def loaded(items: int) -> tuple[Slot, SignatureSet]:
            tiled = base.tiled(items)
            slot = rig.fill("verify", algorithm, columns_of(tiled), items)
            rig.run(slot)
            check_codes(slot, tiled, f"{name} at {items} items on {rig.info.name}")
            return slot, tiled

        items = settings.batch
        slot, tiled = loaded(items)
        if settings.pipeline or rig.info.unified:
            yield Record.of_times(
                f"{name}-unknown{suffix}",
                rig.info,
                items,
                rig.times(slot, settings.runs),
                items,
                includes=includes,
                limit=tightest(link, field),
            )
        if settings.pipeline and not rig.info.unified:
            seconds = rig.sustained_times(slot, settings.runs)
            check_codes(slot, tiled, f"{name}, batch after batch")
            yield Record.of_times(
                f"{name}-unknown-sustained",
                rig.info,
                items,
                seconds,
                items,
                includes=includes,
                limit=tightest(link, field),
            )
        if settings.kernels and not rig.info.unified:
            seconds = rig.kernel_times(slot, settings.runs)
            check_codes(slot, tiled, f"{name} kernels")
            yield Record.of_times(
                f"{name}-unknown-kernel", rig.info, items, seconds, items, includes=("parsing",), limit=field
            )
        if not settings.pipeline:
            return
        for items in (1, 8192) if settings.batch >= 8192 else (1,):
            slot, _ = loaded(items)
            yield Record.of_times(
                f"{name}-{items}-latency{suffix}",
                rig.info,
                items,
                rig.times(slot, settings.runs if rig.info.unified else 10 * settings.runs),
                items,
                unit="s",
                includes=includes,
                limit=None if rig.info.unified else ("launch", limits.launch),
            )

    return measure


def _verify_set(
    name: str,
    make: Callable[[int], SignatureSet],
    made_at_most: int,
    parameters: Mapping[str, str] | None = None,
    constant: bytes = b"",
    includes: tuple[str, ...] = (),
) -> Callable[[Rig, Limits, Settings], Iterator[Record]]:
    """SM2 verification of a set that `make` gives, over and over until the batch is full: one record, no kernels."""

    def measure(rig: Rig, limits: Limits, settings: Settings) -> Iterator[Record]:
        if not (settings.pipeline or rig.info.unified):
            return
        made = make(min(settings.batch, made_at_most)).tiled(settings.batch)
        slot = rig.fill("verify", "SM2", columns_of(made), made.items, parameters or {}, constant)
        rig.run(slot)
        check_codes(slot, made, name)
        yield Record.of_times(
            f"{name}{_suffix(rig.info)}",
            rig.info,
            made.items,
            rig.times(slot, settings.runs),
            made.items,
            includes=(*(("parsing",) if rig.info.unified else ("transfer", "parsing")), *includes),
            limit=limits.of_link(ITEM_BYTES),
        )

    return measure


def _verify_messages(name: str) -> Callable[[Rig, Limits, Settings], Iterator[Record]]:
    make = functools.partial(make_signatures, "SM2", fault_share=0.01, hashed=sm2_hash)
    return _verify_set(name, make, 1 << 14, {"input_kind": "MESSAGE"}, DEFAULT_SM2_USER_ID, ("hashing",))


def _recover(name: str, algorithm: str) -> Callable[[Rig, Limits, Settings], Iterator[Record]]:
    def measure(rig: Rig, limits: Limits, settings: Settings) -> Iterator[Record]:
        made = make_signatures(algorithm, min(settings.batch, 1 << 16)).tiled(settings.batch)
        signatures = np.concatenate([made.signatures, made.recovery[:, None]], axis=1)
        columns = {
            "input": Column.fixed("input", made.digests.ravel(), 32, made.items),
            "signature": Column.fixed("signature", signatures.ravel(), 65, made.items),
        }
        slot = rig.fill("recover", algorithm, columns, made.items)
        rig.run(slot)
        if not np.array_equal(slot.output(0)[:, :64], made.keys):
            raise SelfTestError(f"{name}: a recovered key is not the signer's")
        yield Record.of_times(
            f"{name}{_suffix(rig.info)}",
            rig.info,
            made.items,
            rig.times(slot, settings.runs),
            made.items,
            includes=("parsing",) if rig.info.unified else ("transfer", "parsing"),
            limit=tightest(limits.of_link(97), limits.of_field(algorithm, written_counts().get(name))),
        )

    return measure


def _digest(name: str, algorithm: str) -> Callable[[Rig, Limits, Settings], Iterator[Record]]:
    def measure(rig: Rig, limits: Limits, settings: Settings) -> Iterator[Record]:
        data = np.random.default_rng(1).integers(0, 256, settings.batch * 256, dtype=np.uint8)
        column = Column.fixed("input", data, 256, settings.batch)
        slot = rig.fill("digest", algorithm, {"input": column}, settings.batch)
        where = "-cpu" if rig.info.unified else "-host"
        yield Record.of_times(
            f"{name}{where}",
            rig.info,
            settings.batch,
            rig.times(slot, settings.runs),
            data.size,
            unit="bytes/s",
            includes=() if rig.info.unified else ("transfer",),
            limit=("copy in", limits.copy_in) if limits.copy_in else None,
        )
        if not rig.info.unified:
            seconds = rig.kernel_times(slot, settings.runs)
            yield Record.of_times(f"{name}-device", rig.info, settings.batch, seconds, data.size, unit="bytes/s")

    return measure


def _cipher(cipher: Cipher) -> Callable[[Rig, Limits, Settings], Iterator[Record]]:
    def measure(rig: Rig, limits: Limits, settings: Settings) -> Iterator[Record]:
        return measure_cipher(cipher, rig, limits, settings.cipher_bytes, settings.runs)

    return measure


def _enrolled(name: str, plugin: str, algorithm: str) -> tuple[Case, Case]:
    largest = f"{name}-largest"
    return (
        Case(name, plugin, measure_enrolled(name, algorithm, WINDOW_8), gpu_tunables=WINDOW_8),
        Case(largest, plugin, measure_enrolled(largest, algorithm, LARGEST), gpu_tunables=LARGEST, on_cpu=False),
    )


CASES = (
    Case("sm2-verify", "sm2", _verify("sm2-verify", "SM2"), "SM2", provided=True),
    Case(MESSAGES, "sm2", _verify_messages(MESSAGES), provided=True),
    Case(CRAFTED, "sm2", _verify_set(CRAFTED, make_crafted, 1 << 12)),
    Case("p256-verify", "ecdsa", _verify("p256-verify", "ECDSA_P256"), "ECDSA_P256", provided=True),
    Case("secp256k1-verify", "ecdsa", _verify("secp256k1-verify", "ECDSA_SECP256K1"), "ECDSA_SECP256K1"),
    Case("secp256k1-recover", "ecdsa", _recover("secp256k1-recover", "ECDSA_SECP256K1")),
    Case("sm3", "sm3", _digest("sm3", "SM3")),
    Case("sha256", "sha256", _digest("sha256", "SHA256")),
    Case("keccak256", "keccak", _digest("keccak256", "KECCAK256")),
    *(Case(cipher.name, cipher.plugin, _cipher(cipher), bulk=True) for cipher in CIPHERS),
    # Last: a GPU needs builds of its own for them, which a quick run may have no time for.
    *_enrolled("sm2-verify-enrolled", "sm2", "SM2"),
    *_enrolled("p256-verify-enrolled", "ecdsa", "ECDSA_P256"),
    *_enrolled("secp256k1-verify-enrolled", "ecdsa", "ECDSA_SECP256K1"),
)


def peer_records(case: Case, info: DeviceInfo, runs: int) -> Iterator[Record]:
    """CPU libraries on the same items, one core: the records of `case` stand beside these."""
    messages = case.name == MESSAGES
    algorithm = "SM2" if messages else case.verifies
    if not algorithm:
        return
    for name, peer in peers_for(algorithm, messages=messages):
        count = PEER_ITEMS.get(name, PEER_ITEMS_ELSE)
        items = make_signatures(algorithm, count, hashed=sm2_hash if messages else None)
        seconds = []
        for _ in range(max(3, runs // 2)):
            started = time.perf_counter()
            valid = peer(items)
            seconds.append(time.perf_counter() - started)
            if valid != items.items:
                raise SelfTestError(f"{name}: {valid} of {items.items} valid signatures of {algorithm} pass")
        yield Record.of_times(
            f"{case.name}{'' if messages else '-unknown'}-cpu-{name}",
            info,
            items.items,
            seconds,
            items.items,
            includes=("parsing", "hashing") if messages else ("parsing",),
            settings={"threads": 1},
        )
