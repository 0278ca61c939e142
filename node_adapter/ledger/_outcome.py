"""What came of a row group, and of a file that could not be read."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

from verifier.api import RefusedError

__all__ = ["NOT_VERIFIABLE", "UNREADABLE", "Failure", "Outcome", "first_line"]

NOT_VERIFIABLE = "NOT_VERIFIABLE"
UNREADABLE = "UNREADABLE"


class Failure(NamedTuple):
    """A signature that is not valid. `verdict` is a Code's name, or NOT_VERIFIABLE with a reason in `why`."""

    row: int  # in its row group; of a signature with several possible keys, the first of them
    verdict: str
    block: str
    transaction: str
    why: str


@dataclass(frozen=True, slots=True)
class Outcome:
    """One row group's verdicts, or with `error` why there are none; `row_group` is -1 where a whole file is meant.

    `counts` are signatures by verdict. `plugins` are the digests of the plugins that gave the verdicts.
    """

    path: str
    digest: str  # of the file
    row_group: int
    plugins: Mapping[str, str] = field(default_factory=dict)
    counts: Mapping[str, int] = field(default_factory=dict)
    failures: tuple[Failure, ...] = ()
    error: str = ""

    @property
    def decided(self) -> bool:
        """Whether every signature has a verdict: what is not decided is asked again by the next run."""
        return not self.error and not self.counts.get("UNDECIDED")

    @property
    def valid(self) -> bool:
        """Whether every signature is valid."""
        return not self.error and not self.failures

    def as_line(self) -> str:
        """One line of JSON."""
        return json.dumps(asdict(self), separators=(",", ":"), ensure_ascii=False)

    @classmethod
    def from_line(cls, line: str) -> Outcome:
        """Raises ValueError, KeyError or TypeError for a line that `as_line` did not write."""
        found: dict[str, Any] = json.loads(line)
        found["failures"] = tuple(Failure(*failure) for failure in found["failures"])
        return cls(**found)


def first_line(error: Exception) -> str:
    """What an outcome says of an error: pyarrow's have many lines. One of another process says its kind itself."""
    if isinstance(error, RefusedError):
        return str(error)
    return f"{type(error).__name__}: {error}".splitlines()[0]
