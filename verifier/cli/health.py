"""`verifier health`: one question to a daemon's health service, for probes of containers and service managers."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

__all__ = ["register"]

_HELP = """Asks a daemon whether it serves. Ends with status 0 where it does, and with 1 otherwise.

Examples:

  verifier health

  verifier health --address unix:/run/verifier/health.sock --service verify/SM2
"""


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command(help=_HELP)(health)


def health(
    address: Annotated[
        str, typer.Option(help="The daemon's health listener.", envvar="VERIFIER_HEALTH_ADDRESS")
    ] = "127.0.0.1:50052",
    service: Annotated[str, typer.Option(help='What is asked about: empty, or such as "verify/SM2".')] = "",
    timeout_s: Annotated[float, typer.Option("--timeout", min=0.01, help="Seconds to wait for the answer.")] = 3.0,
) -> None:
    """Asks a daemon whether it serves."""
    # Imported late: --help needs no gRPC.
    import grpc
    from grpc_health.v1 import health_pb2, health_pb2_grpc

    with grpc.insecure_channel(address) as channel:
        try:
            request = health_pb2.HealthCheckRequest(service=service)
            answer = health_pb2_grpc.HealthStub(channel).Check(request, timeout=timeout_s)
        except grpc.RpcError as error:
            print(f"verifier: {address}: {error.code().name}: {error.details()}", file=sys.stderr)
            raise typer.Exit(1) from None
    state = health_pb2.HealthCheckResponse.ServingStatus.Name(answer.status)
    print(state)
    raise typer.Exit(0 if state == "SERVING" else 1)
