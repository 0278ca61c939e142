"""What is done, so that a run that was cut off goes on where it stopped."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from node_adapter.ledger._outcome import Outcome

__all__ = ["Checkpoint"]

_BEGIN = b'{"path":"'  # of every line, as Outcome writes it


class Checkpoint:
    """An append-only file of outcomes, a line each, on the disk before `add` returns. Raises OSError, ValueError.

    A line counts for the file whose digest it names, its row group (whose rows name their schemes) and the digests
    of the plugins that gave the verdicts: a changed file or plugin is verified again. A last line that was cut off
    is dropped. One process at a time: the file is locked while it is open, and the lock ends with the process.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        self._done: dict[tuple[str, int], Outcome] = {}
        self._file = path.open("a", encoding="utf-8")
        try:
            self._lock()
            kept = self._read()
            if path.stat().st_size > kept:
                self._file.truncate(kept)
        except BaseException:
            self._file.close()
            raise

    def _lock(self) -> None:
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ValueError(f"{self.path}: another run writes it; wait for that, or name another file") from None

    def _read(self) -> int:
        """Reads what is there, and returns the bytes up to the end of the last whole line."""
        data = self.path.read_bytes()
        kept = data.rfind(b"\n") + 1
        for number, line in enumerate(data[:kept].splitlines(), 1):
            try:
                outcome = Outcome.from_line(line.decode())
            except (ValueError, KeyError, TypeError, AttributeError):
                raise self._another(number) from None
            self._done[outcome.digest, outcome.row_group] = outcome
        rest = data[kept:].rstrip(b"\0")  # which a file system may leave where power failed
        if not (rest.startswith(_BEGIN) or _BEGIN.startswith(rest)):
            raise self._another(data.count(b"\n") + 1)
        return kept

    def _another(self, number: int) -> ValueError:
        return ValueError(f"{self.path}: line {number} is no checkpoint line; name another file")

    def find(self, digest: str, row_group: int, plugins: Mapping[str, str]) -> Outcome | None:
        """What is known of a row group under the plugins that would verify it now."""
        outcome = self._done.get((digest, row_group))
        if outcome is None or any(plugins.get(name) != value for name, value in outcome.plugins.items()):
            return None
        return outcome

    def add(self, *outcomes: Outcome) -> None:
        """Writes outcomes down. Those that are not decided are not: the next run asks again."""
        decided = [outcome for outcome in outcomes if outcome.decided]
        if not decided:
            return
        self._done |= {(outcome.digest, outcome.row_group): outcome for outcome in decided}
        self._file.write("".join(outcome.as_line() + "\n" for outcome in decided))
        self._file.flush()
        os.fsync(self._file.fileno())

    def close(self) -> None:
        """Closes the file."""
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
