"""Calls of a daemon's admin listener: the options that say where it is, and the call."""

from __future__ import annotations

import functools
import getpass
import inspect
import os
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import grpc
import typer

from verifier.cli._tls import credentials
from verifier.config import default_admin_address
from verifier.v1 import admin_pb2_grpc

__all__ = ["AdminListener", "ask", "asks_daemon"]

DEFAULT_ADDRESS = default_admin_address()

_OPTIONS: dict[str, tuple[Any, Any]] = {
    "address": (
        Annotated[
            str,
            typer.Option("--address", "-a", envvar="VERIFIER_ADMIN_ADDRESS", help="The daemon's admin listener."),
        ],
        DEFAULT_ADDRESS,
    ),
    "ca": (
        Annotated[
            Path | None,
            typer.Option(
                "--tls-ca", envvar="VERIFIER_ADMIN_TLS_CA", help="PEM: who signed the daemon's certificate."
            ),
        ],
        None,
    ),
    "certificate": (
        Annotated[
            Path | None,
            typer.Option(
                "--tls-certificate",
                envvar="VERIFIER_ADMIN_TLS_CERTIFICATE",
                help="PEM: this administrator's certificate.",
            ),
        ],
        None,
    ),
    "key": (
        Annotated[
            Path | None,
            typer.Option("--tls-key", envvar="VERIFIER_ADMIN_TLS_KEY", help="PEM: the certificate's key."),
        ],
        None,
    ),
}


class AdminListener(NamedTuple):
    """Where the admin listener is, and the files of mutual TLS."""

    address: str
    ca: Path | None
    certificate: Path | None
    key: Path | None


def asks_daemon(command: Callable[..., None]) -> Callable[..., None]:
    """A command whose parameter `daemon` is an AdminListener, with the options that say where it is instead."""
    named = inspect.signature(command, eval_str=True).parameters
    parameters = [p.replace(kind=p.KEYWORD_ONLY) for name, p in named.items() if name != "daemon"]
    parameters += [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
        for name, (annotation, default) in _OPTIONS.items()
    ]

    @functools.wraps(command)
    def run(**given: Any) -> None:
        daemon = AdminListener(**{name: given.pop(name) for name in _OPTIONS})
        command(daemon=daemon, **given)

    # What typer reads, both of them.
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return run


def ask(daemon: AdminListener, call: Callable[[Any], Any]) -> Any:
    """Calls the daemon; an error is one line on standard error and status 1."""
    with _stub(daemon) as stub:
        try:
            return call(stub)
        except grpc.RpcError as error:
            code, details = error.code(), error.details()
            if code is grpc.StatusCode.UNAVAILABLE and "failed to connect" in str(details):
                tls = "" if daemon.ca or daemon.address.startswith("unix:") else "; a port needs --tls-ca"
                details = f"no daemon answers at {daemon.address} (its admin.listen, or --address{tls}): {details}"
            typer.echo(f"{code.name}: {details}", err=True)
            raise typer.Exit(1) from None


class _SaysWho(grpc.UnaryUnaryClientInterceptor):  # type: ignore[type-arg]  # generic in its stubs only
    """Adds who is asking, for the audit. The daemon records it as a claim beside what it knows itself."""

    def intercept_unary_unary(self, continuation: Any, details: Any, request: Any) -> Any:
        who = f"{_user()}@{socket.gethostname()}"
        metadata = [*(details.metadata or ()), ("verifier-actor", who.encode("ascii", "replace").decode())]
        return continuation(details._replace(metadata=metadata), request)


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container's user that has no name
        return str(os.getuid())


@contextmanager
def _stub(daemon: AdminListener) -> Iterator[Any]:
    try:
        tls = credentials(daemon.ca, daemon.certificate, daemon.key)
    except OSError as error:
        typer.echo(f"{error.filename}: {error.strerror}", err=True)
        raise typer.Exit(1) from None
    with grpc.secure_channel(daemon.address, tls) if tls else grpc.insecure_channel(daemon.address) as channel:
        yield admin_pb2_grpc.PluginAdminStub(grpc.intercept_channel(channel, _SaysWho()))  # type: ignore[no-untyped-call]
