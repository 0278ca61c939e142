"""Who did which operation on plugins, when, and what came of it."""

from __future__ import annotations

import errno
import json
import os
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields
from pathlib import Path

import structlog

from verifier.errors import ConfigError

__all__ = ["AuditLog", "AuditRecord"]

_log = structlog.get_logger(__name__)

MAX_RECORDS = 10_000  # kept for the listing; the file keeps all


@dataclass(slots=True)
class AuditRecord:
    """One operation. `at` is seconds since the epoch; `outcome` is OK or the error's class."""

    at: float
    actor: str
    operation: str
    target: str  # as it was asked for
    label: str = ""  # plugin@version#generation that came of it
    digest: str = ""
    outcome: str = "OK"
    detail: str = ""


class AuditLog:
    """Append-only: one JSON object a line, each written with one call and synced before the operation returns."""

    def __init__(self, path: Path | None = None) -> None:
        """`path` None keeps records in memory only. Raises ConfigError where the file cannot be appended to."""
        self._lock = threading.Lock()
        self._records: deque[AuditRecord] = deque(maxlen=MAX_RECORDS)
        self._file: int | None = None
        if path is not None:
            try:
                self._file = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
                self._records.extend(_read(path))
                self._end_line()
            except OSError as error:
                raise ConfigError(f"audit file {path}: {error.strerror}") from None

    def _end_line(self) -> None:
        """Ends a line that a crash or a full disk cut short, so that it does not swallow the next record."""
        assert self._file is not None
        size = os.fstat(self._file).st_size
        if size and os.pread(self._file, 1, size - 1) != b"\n":
            os.write(self._file, b"\n")

    @contextmanager
    def operation(self, actor: str, operation: str, target: str) -> Iterator[AuditRecord]:
        """Records what the block does, whichever way it ends. The block fills in label and digest."""
        record = AuditRecord(time.time(), actor, operation, target)
        try:
            yield record
        except BaseException as error:
            record.outcome, record.detail = type(error).__name__, str(error)
            raise
        finally:
            self.append(record)

    def note(self, record: AuditRecord) -> None:
        """Adds a record of what the daemon did by itself: where it cannot be written, that is logged, and what has
        to be done is done all the same."""
        try:
            self.append(record)
        except OSError as error:
            _log.error("audit_not_written", error=str(error), record=asdict(record))

    def append(self, record: AuditRecord) -> None:
        """Adds a record. Raises OSError."""
        line = (json.dumps(asdict(record), sort_keys=True) + "\n").encode()
        with self._lock:
            self._records.append(record)
            if self._file is not None:
                self._end_line()
                written = os.write(self._file, line)
                os.fsync(self._file)
                if written < len(line):  # the next record begins on a line of its own all the same
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def records(self, limit: int = MAX_RECORDS) -> list[AuditRecord]:
        """The newest `limit` records, oldest first."""
        with self._lock:
            return list(self._records)[-limit:] if limit > 0 else []

    def close(self) -> None:
        """Closes the file. Idempotent."""
        with self._lock:
            if self._file is not None:
                os.close(self._file)
                self._file = None


def _read(path: Path) -> Iterator[AuditRecord]:
    """The file's records. A line that a crash cut short is skipped."""
    names = {field.name for field in fields(AuditRecord)}
    with path.open(encoding="utf-8", errors="replace") as file:
        for line in deque(file, maxlen=MAX_RECORDS):
            try:
                data = json.loads(line)
            except json.JSONDecodeError:
                continue
            if isinstance(data, dict) and set(data) == names:
                yield AuditRecord(**data)
