"""The node's side: a client, real chains' formats, and a simulated permissioned chain."""

from node_adapter.client import AsyncVerifierClient, Scheme, Verdicts, VerifierClient
from node_adapter.errors import AdapterError

__all__ = ["AdapterError", "AsyncVerifierClient", "Scheme", "Verdicts", "VerifierClient"]
