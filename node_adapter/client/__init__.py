"""A typed client of the daemon: columns, chunks, retries, and verdicts as numpy arrays."""

from node_adapter.client._asyncio import AsyncVerifierClient
from node_adapter.client._columns import Column, Values, pack
from node_adapter.client._jobs import Limits
from node_adapter.client._mock import Items, MockVerifier
from node_adapter.client._results import Digests, Recovered, Result, Served, Verdicts
from node_adapter.client._scheme import (
    Algorithm,
    Hash,
    InputKind,
    KeyEncoding,
    LowS,
    Priority,
    Scheme,
    SignatureEncoding,
)
from node_adapter.client._sync import VerifierClient
from node_adapter.client._transport import CHANNEL_OPTIONS, Retry

__all__ = [
    "CHANNEL_OPTIONS",
    "Algorithm",
    "AsyncVerifierClient",
    "Column",
    "Digests",
    "Hash",
    "InputKind",
    "Items",
    "KeyEncoding",
    "Limits",
    "LowS",
    "MockVerifier",
    "Priority",
    "Recovered",
    "Result",
    "Retry",
    "Scheme",
    "Served",
    "SignatureEncoding",
    "Values",
    "Verdicts",
    "VerifierClient",
    "pack",
]
