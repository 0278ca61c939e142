"""A batch of rows as the request of a call."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Protocol

from node_adapter.client import Priority
from node_adapter.client._columns import Column
from node_adapter.ledger._calls import Call
from verifier.api import ColumnarRequest, Given
from verifier.model import BatchResult
from verifier.v1 import verifier_pb2 as pb

__all__ = ["CALLER", "MAX_BYTES", "MAX_ITEMS", "Decider", "Decision", "columnar_request"]

MAX_ITEMS = 1 << 18  # of a batch
MAX_BYTES = 32 << 20
CALLER = "ledger"  # whose batches these are, for the scheduler


class Decision(Protocol):
    """A batch that was accepted."""

    def result(self) -> BatchResult:
        """Waits for what came of it. Raises AdapterError or VerifierError."""


class Decider(Protocol):
    """What gives verdicts: the devices of this process, or those of another."""

    def plugins(self, calls: Iterable[Call]) -> dict[str, str]:
        """Digests of the plugins that serve these calls, by name. Raises NotServedError."""

    def submit(self, call: Call, columns: Mapping[str, Column], start: int, stop: int) -> Decision:
        """The items `start` to `stop` of these columns as a batch. Waits while there is no room for it.

        Raises VerifierError naming what is wrong.
        """


def columnar_request(call: Call, columns: Mapping[str, Column], start: int, stop: int) -> tuple[str, ColumnarRequest]:
    """The name of the RPC, and its request for the items `start` to `stop`: columns stay where they are."""
    fields: dict[str, Any] = {
        "items": stop - start,
        "scheme": call.scheme.message(),
        "priority": int(Priority.BULK),
    }
    given = {}
    for name, column in columns.items():
        data, offsets = column.views(start, stop)
        given[name] = Given(data.data, memoryview(offsets))
    if call.recover:
        fields["address_hash"] = int(call.address_hash)
        return "Recover", ColumnarRequest(pb.RecoverRequest(**fields), given)
    return "Verify", ColumnarRequest(pb.VerifyRequest(**fields), given)
