"""A seeded pool of signed transactions, some of them spoilt.

`gmssl` makes about a hundred SM2 signatures a second, so they are made by several processes, once, and kept on disk
under a hash of all that was signed.
"""

from __future__ import annotations

import contextlib
import hashlib
import multiprocessing
import os
import random
import tempfile
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from node_adapter.chain._faults import FAULTS, faults_of
from node_adapter.chain._keys import AccountKey, account_key
from node_adapter.chain._transaction import Transaction, address, der
from node_adapter.client import Algorithm
from verifier import folders
from verifier.schemes import DEFAULT_SM2_USER_ID

__all__ = ["OPENING_BALANCE", "Pool", "PoolEntry", "cache_folder", "make_pool"]

OPENING_BALANCE = 1_000_000
_AT_ONCE = 16  # signatures that a process makes before it reports

Progress = Callable[[int, int], None]
_Work = tuple[AccountKey, bytes, bytes]  # who signs what, under which user id


@dataclass(frozen=True, slots=True)
class PoolEntry:
    """A transaction, and how it was spoilt: a name of FAULTS, or None."""

    transaction: Transaction
    fault: str | None

    @property
    def reason(self) -> str | None:
        """Why a node must reject it; None: it must apply it."""
        return None if self.fault is None else FAULTS[self.fault].reason


@dataclass(frozen=True, slots=True)
class Pool:
    """Transactions in the order in which clients send them, and the accounts that they move money between."""

    entries: tuple[PoolEntry, ...]
    balances: dict[bytes, int]
    algorithm: Algorithm
    chain: int
    signed: int  # how many signatures were made now; 0: all came from the cache


@dataclass(frozen=True, slots=True)
class _Draft:
    transaction: Transaction
    signer: AccountKey
    other: bytes
    fault: str | None

    @property
    def user_id(self) -> bytes:
        told = FAULTS[self.fault].user_id if self.fault else None
        return DEFAULT_SM2_USER_ID if told is None else told


def cache_folder() -> Path:
    """Where signatures are kept: $XDG_CACHE_HOME/verifier/chain, by default under ~/.cache."""
    return folders.cache_folder() / "chain"


def make_pool(
    seed: int,
    transactions: int,
    *,
    algorithm: Algorithm = Algorithm.SM2,
    chain: int = 1,
    accounts: int = 16,
    fault_share: float = 0.1,
    folder: Path | None = None,
    processes: int | None = None,
    progress: Progress | None = None,
) -> Pool:
    """Makes, or reads from the cache, the pool of this seed.

    `progress` gets how many signatures are made, of how many. Every fault is used equally often. A spoilt
    transaction never takes a nonce away from the sender's good ones.
    """
    keys = [account_key(algorithm, seed, number) for number in range(accounts)]
    drafts = _drafts(random.Random(seed), keys, transactions, chain, fault_share, faults_of(algorithm))
    signatures, made = _signatures(drafts, algorithm, folder or cache_folder(), processes, progress)
    entries = tuple(_entry(draft, bytes(row)) for draft, row in zip(drafts, signatures, strict=True))
    return Pool(entries, {address(key.public): OPENING_BALANCE for key in keys}, algorithm, chain, made)


def _drafts(
    rng: random.Random,
    keys: Sequence[AccountKey],
    count: int,
    chain: int,
    fault_share: float,
    faults: Sequence[str],
) -> list[_Draft]:
    nonces = [0] * len(keys)
    faulty = set(rng.sample(range(count), round(count * fault_share)))
    turns = deque(faults)
    drafts = []
    for number in range(count):
        sender, recipient = rng.sample(range(len(keys)), 2)
        fault = None
        if number in faulty:
            # The longest unused fault that can be: no nonce is used before the sender's first transaction.
            fault = next(name for name in turns if nonces[sender] or name != "nonce used before")
            turns.remove(fault)
            turns.append(fault)
        tx = Transaction(
            chain,
            nonces[sender],
            keys[sender].public,
            address(keys[recipient].public),
            rng.randint(1, 100),
            rng.randbytes(rng.randint(0, 200)),
        )
        if fault is None:
            nonces[sender] += 1
        else:
            tx = FAULTS[fault].before(tx)
        drafts.append(_Draft(tx, keys[sender], keys[recipient].public, fault))
    return drafts


def _entry(draft: _Draft, signature: bytes) -> PoolEntry:
    if draft.fault is None:
        tx = draft.transaction
        return PoolEntry(
            Transaction(tx.chain, tx.nonce, tx.key, tx.recipient, tx.amount, tx.payload, der(signature)), None
        )
    return PoolEntry(FAULTS[draft.fault].after(draft.transaction, signature, draft.other), draft.fault)


def _signatures(
    drafts: Sequence[_Draft],
    algorithm: Algorithm,
    folder: Path,
    processes: int | None,
    progress: Progress | None,
) -> tuple[np.ndarray[tuple[int, ...], np.dtype[np.uint8]], int]:
    work = [(draft.signer, draft.transaction.signed, draft.user_id) for draft in drafts]
    digest = hashlib.sha256()
    for signer, body, user_id in work:
        digest.update(b"".join(len(part).to_bytes(4, "big") + part for part in (signer.public, body, user_id)))
    path = folder / f"{algorithm.name.lower()}-{digest.hexdigest()}.npy"
    if path.is_file():
        kept = np.load(path, allow_pickle=False)
        if kept.shape == (len(work), 64) and kept.dtype == np.uint8:
            return kept, 0
    made = _made(work, algorithm, processes, progress)
    with contextlib.suppress(OSError):  # no place to keep them: they are made again the next time
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=folder, suffix=".tmp", delete=False) as file:
            np.save(file, made)
        Path(file.name).replace(path)
    return made, len(work)


def _made(
    work: Sequence[_Work], algorithm: Algorithm, processes: int | None, progress: Progress | None
) -> np.ndarray[tuple[int, ...], np.dtype[np.uint8]]:
    """All signatures: a process would take longer to start than OpenSSL takes to sign some ten thousand times."""
    parts = [work[start : start + _AT_ONCE] for start in range(0, len(work), _AT_ONCE)]
    done: list[bytes] = []
    results: Iterable[list[bytes]]
    context = multiprocessing.get_context("spawn")  # threads of gRPC may run here, which a fork would not survive
    with contextlib.ExitStack() as stack:
        if algorithm is Algorithm.SM2:
            pool = stack.enter_context(ProcessPoolExecutor(processes or os.cpu_count(), mp_context=context))
            results = pool.map(_sign, parts)
        else:
            results = map(_sign, parts)
        for part in results:
            done += part
            if progress:
                progress(len(done), len(work))
    return np.frombuffer(b"".join(done), np.uint8).reshape(len(work), 64)


def _sign(part: Sequence[_Work]) -> list[bytes]:
    return [signer.sign(body, user_id) for signer, body, user_id in part]
