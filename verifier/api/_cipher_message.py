"""One message in chunks: what is carried from chunk to chunk.

`feed` takes the chunks in order and submits their work; each gives a Step, whose `finish` waits for it. Steps are
finished in the same order, perhaps by another thread: what is carried by `feed` is the caller's to call from one
thread, and so is what is carried by `finish`.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field

import numpy as np

from verifier.api._cipher_keys import HeldKeys
from verifier.api._cipher_modes import (
    CELL_BYTES,
    FOLDED,
    HASH_BYTES,
    Done,
    Messages,
    Operations,
    fold,
    gcm_counters,
    require_valid,
    tags_of,
)
from verifier.api._cipher_requests import CipherScheme
from verifier.api._cipher_stripes import Stripes, add_to_counters
from verifier.ciphers import STRIPE_BLOCKS
from verifier.model import Batch, BatchResult, Bytes, Column
from verifier.secret import Secret

__all__ = ["MessageStart", "MessageStream", "Step"]

Submit = Callable[[Batch], Future[BatchResult]]
Wait = Callable[[Future[BatchResult]], BatchResult]

# Hashes wait until so many have come, that a fold is a batch worth a launch: 16 MiB of data, half a MiB of hashes.
_FOLD_AT = FOLDED * 1024 - 1


@dataclass(frozen=True, slots=True)
class MessageStart:
    """How a message begins. `initial` is (1, block): the counter, the block before, or the nonce."""

    scheme: CipherScheme
    initial: Bytes
    aad: bytes
    tag: bytes


@dataclass(slots=True)
class Step:
    """A chunk's work. `data` is what it gives, once `finish` has returned."""

    stripes: Stripes
    last: bool
    keys: HeldKeys
    secret: Secret
    future: Future[BatchResult] | None = None
    done: Bytes = field(default_factory=lambda: np.empty(0, np.uint8))  # CBC encryption: made while it was fed

    def cancel(self) -> None:
        """Nobody wants it any more."""
        if self.future is not None:
            self.future.cancel()
        self.keys.release()


class MessageStream:
    """A message of which a part has come."""

    def __init__(self, start: MessageStart, operations: Operations, submit: Submit, wait: Wait) -> None:
        self._scheme = start.scheme
        self._start = start
        self._operations = operations
        self._submit = submit
        self._wait = wait
        # Carried by `feed`.
        self._rest = b""
        self.length = 0
        self._chain = gcm_counters(start.initial) if start.scheme.mode == "GCM" else start.initial
        # Carried by `finish`.
        self._hashes: list[Bytes] = [np.zeros((1, HASH_BYTES), np.uint8)]  # the first is that of all before
        self._waiting = 1
        self._last_hash = np.zeros((1, HASH_BYTES), np.uint8)
        self.tag = b""
        self.authentic = False
        self.served = Done(np.empty(0, np.uint8), np.empty(0, np.int64), np.empty(0, np.uint8))

    def feed(self, chunk: bytes, last: bool, keys: HeldKeys) -> Step:
        """Submits a chunk's whole cells; what is left waits for the next, or is the end. The step releases `keys`.

        Raises RequestError where the message ends within a block, and what submitting raises.
        """
        data = np.frombuffer(self._rest + chunk if self._rest else chunk, np.uint8)
        self.length += len(chunk)
        if last or not self._scheme.whole_blocks:
            self._scheme.check_length("data", self.length)
        taken = data.size if last else data.size // CELL_BYTES * CELL_BYTES
        self._rest = data[taken:].tobytes()
        part = data[:taken]
        lengths = np.array([taken], np.int64)
        stripes = Stripes.of(lengths, self._scheme.cipher.stripe_bytes)
        step = Step(stripes, last, keys, keys.constant())
        if not stripes.count:
            return step
        if self._scheme.mode == "CBC" and self._scheme.encrypts:
            step.done = self._chained(part, lengths, keys)
        else:
            step.future = self._submit(self._operations.bulk(stripes, part, self._chain, step.secret))
            self._advance(stripes.count, part)
        return step

    def _advance(self, stripes: int, part: Bytes) -> None:
        mode, block = self._scheme.mode, self._scheme.cipher.block_bytes
        if mode in ("CTR", "GCM"):
            self._chain = add_to_counters(self._chain, np.array([stripes * STRIPE_BLOCKS], np.uint64))
        elif mode == "CBC":
            self._chain = part[-block:].reshape(1, block).copy()

    def _chained(self, part: Bytes, lengths: np.ndarray[tuple[int], np.dtype[np.int64]], keys: HeldKeys) -> Bytes:
        none = np.zeros((1, 0), np.uint8)
        messages = Messages(lengths, part, self._chain, Column.absent(), none)
        done = self._operations.long(
            messages, keys.constant(), lambda n: keys.column(np.zeros(n, np.uint32)), self._run
        )
        require_valid(done, "a chunk was not done")
        self.served = done
        self._chain = done.data[-self._scheme.cipher.block_bytes :].reshape(1, -1).copy()
        return done.data

    def _run(self, batch: Batch) -> BatchResult:
        return self._wait(self._submit(batch))

    def finish(self, step: Step) -> Bytes:
        """What a step gives; after the last one `tag` or `authentic` are known. Raises BackendError."""
        try:
            data = step.done
            if step.future is not None:
                result = self._wait(step.future)
                require_valid(result, "a chunk was not done")
                self.served.note(result)
                data = step.stripes.compact(result.outputs[0])
                if self._scheme.mode == "GCM":
                    self._hash(step, result.outputs[1])
            if step.last and self._scheme.mode == "GCM":
                self._end(step.secret)
            return data
        finally:
            step.keys.release()

    def _hash(self, step: Step, hashes: Bytes) -> None:
        full = step.stripes.filled == step.stripes.width
        if not full.all():
            self._last_hash = hashes[~full]
        self._hashes.append(hashes[full])
        self._waiting += int(full.sum())
        if self._waiting > _FOLD_AT:
            self._fold(step.secret, 1)

    def _fold(self, secret: Secret, most: int) -> tuple[int, int]:
        """Folds what waits to `most` hashes. Returns how many are left and the folds."""
        hashes, counts, folds = fold(
            self._operations, np.concatenate(self._hashes), np.array([self._waiting]), secret, self._run, most
        )
        self._hashes, self._waiting = [hashes], len(hashes)
        return int(counts[0]), folds

    def _end(self, secret: Secret) -> None:
        counts, folds = self._fold(secret, FOLDED)
        aad = np.frombuffer(self._start.aad, np.uint8)
        messages = Messages(
            np.array([self.length], np.int64),
            np.empty(0, np.uint8),
            self._start.initial,
            Column(aad, 0, np.array([0, aad.size], np.uint32)),
            np.zeros((1, 0), np.uint8),
        )
        tags = tags_of(
            self._operations,
            self._hashes[0],
            np.array([counts], np.int64),
            folds,
            self._last_hash,
            messages,
            secret,
            self._run,
            self.served,
        )
        self.tag = tags.tobytes()
        self.authentic = not self._scheme.encrypts and hmac.compare_digest(self.tag, self._start.tag)
