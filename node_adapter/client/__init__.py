"""A typed client of the daemon: columns, chunks, retries, and verdicts as numpy arrays."""

from node_adapter.client._asyncio import AsyncVerifierClient
from node_adapter.client._cipher import CipherClient
from node_adapter.client._cipher_asyncio import AsyncCipherClient, AsyncCipherStream
from node_adapter.client._cipher_jobs import Transformed
from node_adapter.client._cipher_scheme import (
    CipherAlgorithm,
    CipherByteOrder,
    CipherMode,
    CipherScheme,
    CounterFormat,
    Direction,
)
from node_adapter.client._cipher_stream import CipherStream
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
from node_adapter.client._shared_memory import SharedMemory
from node_adapter.client._sync import VerifierClient
from node_adapter.client._tracing import trace_calls
from node_adapter.client._transport import CHANNEL_OPTIONS, Retry

__all__ = [
    "CHANNEL_OPTIONS",
    "Algorithm",
    "AsyncCipherClient",
    "AsyncCipherStream",
    "AsyncVerifierClient",
    "CipherAlgorithm",
    "CipherByteOrder",
    "CipherClient",
    "CipherMode",
    "CipherScheme",
    "CipherStream",
    "Column",
    "CounterFormat",
    "Digests",
    "Direction",
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
    "SharedMemory",
    "SignatureEncoding",
    "Transformed",
    "Values",
    "Verdicts",
    "VerifierClient",
    "pack",
    "trace_calls",
]
