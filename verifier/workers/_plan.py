"""How a batch is cut into chunks: how many items each, in order.

Work that the kernels bound (signatures). A round is what fills the device once. A chunk of r rounds takes c r to copy
and k r to compute, c < k, and while it is computed the next ones are copied. So only the first chunk's copy is
exposed, c r, and the second chunk is there in time as long as its copy takes no longer than the first one's kernels.
What is no whole round has to run at some point, with too few warps a multiprocessor to hide each other's latency, and
costs the same wherever it does: in front it is the smallest first copy besides. So: the remainder first, then the
usual chunks, which are whole rounds. A first chunk below 1 / `_LEAST_FIRST` of a round would leave multiprocessors
without a warp, and gets a whole round more. Behind another batch nothing of this matters: the first copy overlaps
that one's kernels.

Work that the link bounds both ways (ciphers). Chunk i goes out when all up to it have come in, and all behind it go
out later: c_1 + ... + c_i in, then c_i + ... + c_n out, S + c_i together, whichever i. So what is exposed is the
*largest* chunk, at an end or in the middle. Each of n chunks costs the link a gap besides, worth g bytes, so equal
chunks take S + c + g S / c, least at c = sqrt(g S). Chunks that grow and shrink again have a largest one too, and
more gaps: they gain nothing where copies run in the order given. They are for devices that run the copies of several
streams side by side, where results come the sooner the smaller the first chunks are.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

__all__ = ["Bounds", "Ramp", "Work", "chunk_sizes", "is_both_ways", "usual_items"]

Ramp = Literal["none", "kernels", "all"]

_WORD = 32  # items of a bitmap word: every chunk but the last is a multiple
_LONG_ITEM_BYTES = 256
_LEAST_FIRST = 16  # a round's warps a multiprocessor, and so the least share of one that gives each a warp
_RAMP_STEPS = 3  # a ramp begins at 2^-3 of the usual chunk


class Work(NamedTuple):
    """What is cut: a batch of an operation."""

    items: int  # at least one
    item_bytes: int  # an item's way in
    output_bytes: int  # and its way out, codes and bitmaps aside
    round_items: int  # items that fill the device once
    rounds: int = 0  # of a chunk; 0: as the bounds have it


class Bounds(NamedTuple):
    """What `WorkerOptions` says of chunks."""

    rounds: int
    least_bytes: int
    most_bytes: int
    both_ways_bytes: int
    ramp: Ramp


def chunk_sizes(work: Work, bounds: Bounds, *, idle: bool) -> list[int]:
    """Items of each chunk, in order; all but the last are multiples of 32. `idle`: the device has no other batch."""
    usual = usual_items(work, bounds)
    if is_both_ways(work, bounds):
        return _ramped(work.items, usual) if idle and bounds.ramp == "all" else _equal(work.items, usual)
    rounds, more = divmod(usual, _round(work))
    # Else the chunk's bytes decide, and the link has more to say than the kernels.
    if idle and bounds.ramp != "none" and rounds <= _rounds(work, bounds) and not more:
        return _remainder_first(work.items, _round(work), usual)
    return _flat(work.items, usual)


def is_both_ways(work: Work, bounds: Bounds) -> bool:
    """Whether items are long and about as much comes back, so that the link both ways is the limit."""
    long = 2 * work.output_bytes >= work.item_bytes >= _LONG_ITEM_BYTES
    return long and bounds.both_ways_bytes > 0


def usual_items(work: Work, bounds: Bounds) -> int:
    """Items of the usual chunk: whole rounds, at least `rounds` of them and at least `least_bytes` of input.

    Long items fill the link before they fill the device, so `most_bytes` of input has the last word: chunks that are
    copied while others run then matter more than full launches, and the streams fill the device together. Work both
    ways has chunks of `both_ways_bytes`, whatever the launches are.
    """
    per_round, item_bytes = _round(work), max(1, work.item_bytes)
    if is_both_ways(work, bounds):
        return max(_WORD, _words_down(min(bounds.both_ways_bytes, bounds.most_bytes) // item_bytes))
    items = per_round * max(_rounds(work, bounds), -(-bounds.least_bytes // (item_bytes * per_round)))
    most = bounds.most_bytes // item_bytes
    if items <= most:
        return items
    return most // per_round * per_round or max(_WORD, _words_down(most))


def _rounds(work: Work, bounds: Bounds) -> int:
    return work.rounds or bounds.rounds


def _round(work: Work) -> int:
    return _words_up(work.round_items)


def _remainder_first(items: int, per_round: int, usual: int) -> list[int]:
    # Rounded up, so that what follows fills its rounds or misses them by less than a word, and never begins one more.
    first = _words_up(items % per_round) or per_round
    if first * _LEAST_FIRST < per_round:
        first += per_round
    first = min(first, usual, items)
    return [first, *_flat(items - first, usual)]


def _flat(items: int, size: int) -> list[int]:
    whole, rest = divmod(items, size)
    return [size] * whole + [rest] * (rest > 0)


def _equal(items: int, most: int) -> list[int]:
    """As few chunks as there can be, and nearly equal."""
    chunks = -(-items // most)
    return _flat(items, _words_up(-(-items // chunks)))


def _ramped(items: int, usual: int) -> list[int]:
    """Doubling from an eighth of the usual chunk at the beginning, halving to it at the end."""
    steps = [size for step in range(_RAMP_STEPS, 0, -1) if (size := _words_down(usual >> step))]
    up: list[int] = []
    for size in steps:
        if sum(up) + size > items // 3:  # a third for each ramp, and one for what is between them
            break
        up.append(size)
    if not up:
        return _equal(items, usual)
    words, rest = divmod(items - 2 * sum(up), _WORD)
    return [*up, *_equal(words * _WORD, usual), *up[:0:-1], up[0] + rest]


def _words_down(items: int) -> int:
    return items // _WORD * _WORD


def _words_up(items: int) -> int:
    return -(-items // _WORD) * _WORD
