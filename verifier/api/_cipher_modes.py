"""Modes of operation over batches: which operations of a plugin make a message, and what goes between them.

Short messages (512 bytes at most) are items of the `_each` operations, each with its key. Longer ones are cut into
stripes under one key; those that CBC encrypts into parts, one after the other. GCM of long messages: the stripes'
hashes are folded, 32 to one, until few enough are left for `gcm_tag` (docs/decisions/0010-ciphers.md).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from verifier.api._cipher_stripes import Lengths, Stripes, compact, offsets_of
from verifier.ciphers import GCM_NONCE_BYTES, GCM_TAG_BYTES, Cipher
from verifier.errors import BackendError
from verifier.model import Batch, BatchKey, BatchResult, Bytes, Code, Column, Timings
from verifier.secret import Secret

__all__ = [
    "CELL_BYTES",
    "CHAIN_BYTES",
    "FOLDED",
    "HASH_BYTES",
    "Done",
    "Messages",
    "Operations",
    "fold",
    "gcm_counters",
    "require_valid",
    "tags_of",
]

CELL_BYTES = 512  # of a message of the `_each` operations
CHAIN_BYTES = 8192  # of a part of a message that CBC encrypts
HASH_BYTES = 16
FOLDED = 32  # hashes that one fold takes, and so few that `gcm_tag` does the rest
_EACH_MODES = {"ECB": 1, "CTR": 2, "CBC": 3}

Key = Callable[..., BatchKey]
Run = Callable[[Batch], BatchResult]


@dataclass(frozen=True, slots=True)
class Messages:
    """`iv` is a row a message: its counter in CTR, the block before it in CBC, the nonce in GCM."""

    lengths: Lengths
    data: Bytes
    iv: Bytes
    aad: Column
    tags: Bytes  # (n, 16) where tags are checked


@dataclass(slots=True)
class Done:
    """What became of messages: one Code each, and the bytes of those that are valid, one behind the other."""

    codes: Bytes
    lengths: Lengths
    data: Bytes
    tags: Bytes | None = None
    served_by: str = ""
    device: str = ""
    timings: Timings = dataclasses.field(default_factory=Timings)

    def note(self, result: BatchResult) -> None:
        """Remembers who served a batch, and adds its times."""
        self.served_by, self.device = result.served_by or self.served_by, result.device or self.device
        self.timings.queue_ns += result.timings.queue_ns
        self.timings.device_ns += result.timings.device_ns
        self.timings.total_ns += result.timings.total_ns

    def keep_valid(self) -> Done:
        """Overwrites the bytes of messages that are not valid, and leaves them out."""
        valid = self.codes == Code.VALID
        if not valid.all():
            kept = np.repeat(valid, self.lengths)
            data = self.data[kept]
            self.data = self.data if self.data.flags.writeable else self.data.copy()
            self.data[...] = 0
            self.data, self.lengths = data, np.where(valid, self.lengths, 0)
        return self


@dataclass(frozen=True, slots=True)
class Operations:
    """A cipher's operations in one mode. `resolve(operation, **parameters)` gives a batch's key, `run` its result."""

    cipher: Cipher
    mode: str
    encrypts: bool
    option: Mapping[str, int]  # HIGHT: byte_order
    resolve: Key

    def short(self, messages: Messages, keys: Column, run: Run) -> Done:
        """Messages of at most CELL_BYTES bytes, each under its key in `keys`."""
        name = "encrypt_each" if self.encrypts or self.mode == "CTR" else "decrypt_each"
        items = messages.lengths.size
        offsets = offsets_of(messages.lengths)
        data = Column(messages.data, 0, offsets.astype(np.uint32))
        if self.mode == "GCM":
            key = self.resolve(f"gcm_{name}")
            inputs = [data, keys, _rows(messages.iv), messages.aad]
            if not self.encrypts:
                inputs.append(_rows(messages.tags))
        else:
            key = self.resolve(name, mode=_EACH_MODES[self.mode], **self.option)
            inputs = [data, keys, _rows(messages.iv)]
        result = run(Batch(dataclasses.replace(key, secret_inputs=(1,)), items, tuple(inputs)))
        cells = _output(result, 0, CELL_BYTES)
        codes = np.where(result.codes == Code.RETRY, np.uint8(Code.UNDECIDED), result.codes)
        done = Done(codes, messages.lengths, compact(cells, messages.lengths))
        if self.mode == "GCM" and self.encrypts:
            done.tags = _output(result, 1, GCM_TAG_BYTES)
        done.note(result)
        return done.keep_valid()

    def long(self, messages: Messages, secret: Secret, keys: Callable[[int], Column], run: Run) -> Done:
        """Messages of any length under one key; `keys(n)` is a column that has it n times."""
        if self.mode == "CBC" and self.encrypts:
            return self._chained(messages, keys, run)
        stripes = Stripes.of(messages.lengths, self.cipher.stripe_bytes)
        if self.mode == "GCM":
            return self._gcm(messages, stripes, secret, run)
        done = Done(np.full(messages.lengths.size, Code.VALID, np.uint8), messages.lengths, messages.data)
        if stripes.count:
            result = run(self.bulk(stripes, messages.data, messages.iv, secret))
            done.note(result)
            done.data = stripes.compact(_output(result, 0, stripes.width))
            _undecide(done.codes, stripes, result)
        return done.keep_valid()

    def bulk(self, stripes: Stripes, data: Bytes, initial: Bytes, secret: Secret) -> Batch:
        """The batch of a bulk operation. `initial`: each message's counter, or the block before it."""
        cells = stripes.fill(data)
        way = "encrypt" if self.encrypts else "decrypt"
        inputs = [_rows(cells)]
        match self.mode:
            case "ECB":
                name = f"ecb_{way}"
            case "CTR":
                name = "ctr"
                inputs.append(_rows(stripes.counters(initial)))
            case "CBC":
                name = "cbc_decrypt"
                inputs.append(_rows(stripes.previous(cells, initial)))
            case _:
                name = f"gcm_{way}"
                inputs += [_rows(stripes.counters(initial)), _rows(stripes.filled.astype("<u4").view(np.uint8), 4)]
        key = dataclasses.replace(self.resolve(name, **self.option), constant=secret)
        return Batch(key, stripes.count, tuple(inputs))

    def _chained(self, messages: Messages, keys: Callable[[int], Column], run: Run) -> Done:
        """CBC encryption: a part of every message at a time, each from the last block of the one before."""
        parts = Stripes.of(messages.lengths, CHAIN_BYTES)
        cells = parts.fill(messages.data)
        out = np.zeros_like(cells)
        iv = messages.iv.copy()
        done = Done(np.full(messages.lengths.size, Code.VALID, np.uint8), messages.lengths, messages.data)
        counts = np.diff(parts.first)
        key = dataclasses.replace(self.resolve("cbc_encrypt", **self.option), secret_inputs=(1,))
        for step in range(int(counts.max(initial=0))):
            active = np.flatnonzero(counts > step)
            rows = parts.first[active] + step
            filled = parts.filled[rows]
            offsets = offsets_of(filled).astype(np.uint32)
            data = Column(compact(cells[rows], filled), 0, offsets)
            result = run(Batch(key, active.size, (data, keys(active.size), _rows(iv[active]))))
            done.note(result)
            # What follows in an undecided message means nothing; the others go on.
            done.codes[active[result.codes != Code.VALID]] = Code.UNDECIDED
            out[rows] = _output(result, 0, CHAIN_BYTES)
            iv[active] = out[rows, -self.cipher.block_bytes :]  # of the last part's cell it is not used
        done.data = parts.compact(out)
        return done.keep_valid()

    def _gcm(self, messages: Messages, stripes: Stripes, secret: Secret, run: Run) -> Done:
        items = messages.lengths.size
        done = Done(np.full(items, Code.VALID, np.uint8), messages.lengths, messages.data)
        hashes = np.zeros((0, HASH_BYTES), np.uint8)
        if stripes.count:
            result = run(self.bulk(stripes, messages.data, gcm_counters(messages.iv), secret))
            done.note(result)
            done.data = stripes.compact(_output(result, 0, stripes.width))
            hashes = _output(result, 1, HASH_BYTES)
            _undecide(done.codes, stripes, result)
        whole = messages.lengths // stripes.width
        full = stripes.filled == stripes.width
        last = np.zeros((items, HASH_BYTES), np.uint8)
        last[stripes.message[~full]] = hashes[~full]
        folded, counts, folds = fold(self, hashes[full], whole, secret, run, FOLDED)
        tags = tags_of(self, folded, counts, folds, last, messages, secret, run, done)
        if self.encrypts:
            done.tags = tags
        else:
            wrong = (tags ^ messages.tags).any(axis=1)
            done.codes = np.where(wrong & (done.codes == Code.VALID), np.uint8(Code.INVALID), done.codes)
        return done.keep_valid()


def gcm_counters(nonces: Bytes) -> Bytes:
    """The counter of the first block of data: the nonce and 2."""
    counters = np.zeros((len(nonces), GCM_NONCE_BYTES + 4), np.uint8)
    counters[:, :GCM_NONCE_BYTES] = nonces
    counters[:, -1] = 2
    return counters


def fold(
    operations: Operations, hashes: Bytes, counts: Lengths, secret: Secret, run: Run, most: int
) -> tuple[Bytes, Lengths, int]:
    """Folds every message's hashes, 32 to one, until none has more than `most`. Raises BackendError.

    `hashes` are (sum of counts, 16), a message's behind the other's. Returns them, their counts and the folds.
    """
    folds = 0
    while counts.max(initial=0) > most:
        groups = -(-counts // FOLDED)
        ends = np.cumsum(groups * FOLDED)
        padded = np.zeros((int(groups.sum()) * FOLDED, HASH_BYTES), np.uint8)
        # Zeros in front count for nothing.
        shift = np.repeat(ends - np.cumsum(counts), counts)
        padded[np.arange(len(hashes)) + shift] = hashes
        folds += 1
        key = dataclasses.replace(operations.resolve("gcm_fold", folds=folds), constant=secret)
        result = run(Batch(key, len(padded) // FOLDED, (_rows(padded.reshape(-1, FOLDED * HASH_BYTES)),)))
        require_valid(result, "the tag could not be computed")
        hashes, counts = _output(result, 0, HASH_BYTES), groups
    return hashes, counts, folds


def tags_of(
    operations: Operations,
    folded: Bytes,
    counts: Lengths,
    folds: int,
    last: Bytes,
    messages: Messages,
    secret: Secret,
    run: Run,
    done: Done,
) -> Bytes:
    """The tags, (n, 16). `last` is the hash of each message's last, incomplete stripe. Raises BackendError."""
    key = dataclasses.replace(operations.resolve("gcm_tag", folds=folds), constant=secret)
    inputs = (
        Column(folded.reshape(-1), 0, (HASH_BYTES * offsets_of(counts)).astype(np.uint32)),
        _rows(last),
        _rows(messages.lengths.astype("<u8").view(np.uint8), 8),
        _rows(messages.iv),
        messages.aad,
    )
    result = run(Batch(key, counts.size, inputs))
    require_valid(result, "the tag could not be computed")
    done.note(result)
    return _output(result, 0, GCM_TAG_BYTES)


def _rows(rows: Bytes, width: int | None = None) -> Column:
    return Column(np.ascontiguousarray(rows).reshape(-1), rows.shape[1] if width is None else width)


def _output(result: BatchResult, index: int, width: int) -> Bytes:
    """An output; zeros where no device gave any."""
    return result.outputs[index] if result.outputs else np.zeros((result.items, width), np.uint8)


def _undecide(codes: Bytes, stripes: Stripes, result: BatchResult) -> None:
    """A message is decided where all of its stripes are."""
    codes[stripes.any_in_message(result.codes != Code.VALID)] = Code.UNDECIDED


def require_valid(result: BatchResult | Done, otherwise: str) -> None:
    """Raises BackendError, whose text begins with `otherwise`, where an item is not done."""
    if (result.codes != Code.VALID).any():
        raise BackendError(f"{otherwise}: no device finished it")
