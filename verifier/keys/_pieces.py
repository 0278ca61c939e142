"""A batch that is run in pieces: by tables what has one, with its keys what has none or turned out to have none."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial

import numpy as np

from verifier.attended import Attended, attend_as
from verifier.errors import NotServedError
from verifier.keys._batches import Positions, joined, not_in_a_table
from verifier.keys._sets import Indices
from verifier.model import Batch, BatchResult

__all__ = ["Pieces", "Released", "Submit"]

Released = Callable[[], None]
Submit = Callable[[Batch, "Released | None"], Future[BatchResult]]


class Pieces:
    """The pieces of one batch on their way, and its future.

    Cancelling `future` cancels every piece. Where a piece fails its items stay open; where nothing is decided the
    error is the future's.
    """

    def __init__(
        self,
        items: int,
        refused: Indices,
        plain: Callable[[Positions | None], Batch],
        submit: Submit,
        released: Released,
    ) -> None:
        """`refused`: items whose index names no key. `plain` gives the items at positions with their keys, None: all
        of them. `released` is called once, when no device reads a piece any more."""
        self.future: Attended[BatchResult] = Attended()
        self._items = items
        self._refused = refused
        self._plain = plain
        self._submit = submit
        self._released = released
        self._lock = threading.Lock()
        self._results: list[tuple[Positions | None, BatchResult]] = []
        self._inner: list[Future[BatchResult]] = []
        self._open = 0
        self._readers = 0  # pieces whose columns a device may still read
        self._error: BaseException | None = None
        # Weak, as its pieces' callbacks hold it as long as it is needed: in a cycle the columns and results of every
        # batch would stay until the collector comes, and that would come often.
        self.future.add_done_callback(partial(_cancelled, weakref.ref(self)))

    def run(self, *pieces: tuple[Positions | None, Batch, bool]) -> Future[BatchResult]:
        """Submits pieces, each (positions, batch, whether it goes by tables)."""
        with self._lock:
            self._open += 1  # not done before all were begun
        for positions, batch, by_table in pieces:
            self._begin(positions, batch, by_table)
        self._close()
        return self.future

    def _begin(self, positions: Positions | None, batch: Batch, by_table: bool) -> None:
        with self._lock:
            self._open += 1
            self._readers += 1
        try:
            future = self._submit(batch, self._read)
        except Exception as error:  # whatever it is: the hold on the tables ends with the last piece
            future = Future()
            future.set_exception(error)
            self._read()
        with self._lock:
            self._inner.append(future)
        attend_as(self.future, future)
        future.add_done_callback(lambda done: self._done(positions, batch.items, done, by_table))
        if self.future.cancelled():
            future.cancel()

    def _done(self, positions: Positions | None, items: int, done: Future[BatchResult], by_table: bool) -> None:
        try:
            self._take(positions, items, done, by_table)
        except Exception as error:
            self._keep(positions, BatchResult.undetermined(items), error)
        self._close()

    def _take(self, positions: Positions | None, items: int, done: Future[BatchResult], by_table: bool) -> None:
        error = None if done.cancelled() else done.exception()
        if by_table and isinstance(error, NotServedError):
            # The plugin that came meanwhile keeps no tables.
            self._begin(positions, self._plain(positions), False)
        elif done.cancelled() or error is not None:
            self._keep(positions, BatchResult.undetermined(items), error)
        else:
            self._keep(positions, done.result())
            if by_table:
                self._run_again(positions, done.result())

    def _run_again(self, positions: Positions | None, result: BatchResult) -> None:
        refused = self._refused if positions is None else np.flatnonzero(np.isin(positions, self._refused))
        again = not_in_a_table(result.codes, refused)
        if not again.size:
            return
        where = again if positions is None else positions[again]
        # What the device said of them is no verdict, whatever becomes of the second run.
        self._keep(where, BatchResult.undetermined(where.size))
        everything = where.size == self._items
        self._begin(None if everything else where, self._plain(None if everything else where), False)

    def _keep(self, positions: Positions | None, result: BatchResult, error: BaseException | None = None) -> None:
        with self._lock:
            self._results.append((positions, result))
            self._error = self._error or error

    def _close(self) -> None:
        """One piece less is open; the last one answers."""
        with self._lock:
            self._open -= 1
            if self._open:
                return
            read = not self._readers
            self._inner.clear()
        if read:
            self._released()
        if not self.future.set_running_or_notify_cancel():
            return
        result = joined(self._items, self._results)
        if self._error is not None and not result.decided.any():
            self.future.set_exception(self._error)
        else:
            self.future.set_result(result)

    def _read(self) -> None:
        """A piece's columns are read by nobody any more."""
        with self._lock:
            self._readers -= 1
            last = not self._readers and not self._open
        if last:
            self._released()

    def cancel(self) -> None:
        """Cancels every piece."""
        with self._lock:
            inner = list(self._inner)
        for piece in inner:
            piece.cancel()


def _cancelled(reference: weakref.ref[Pieces], future: Future[BatchResult]) -> None:
    pieces = reference()
    if pieces is not None and future.cancelled():
        pieces.cancel()
