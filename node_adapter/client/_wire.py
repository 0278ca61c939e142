"""The generated contract, untyped: its stubs want enum types that do not exist at run time."""

from __future__ import annotations

from typing import Any

from verifier.v1 import verifier_pb2, verifier_pb2_grpc

__all__ = ["add_servicer", "new_stub", "pb"]

pb: Any = verifier_pb2
new_stub: Any = verifier_pb2_grpc.VerifierStub
add_servicer: Any = verifier_pb2_grpc.add_VerifierServicer_to_server
