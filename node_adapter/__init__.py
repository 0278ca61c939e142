"""The node's side: a client, real chains' formats, and a simulated permissioned chain."""

from node_adapter.client import AsyncVerifierClient, Scheme, Verdicts, VerifierClient
from node_adapter.errors import AdapterError
from node_adapter.local import LocalVerifier

__all__ = ["AdapterError", "AsyncVerifierClient", "LocalVerifier", "Scheme", "Verdicts", "VerifierClient"]
