"""What a call knows of its caller, for tests without a server."""

from __future__ import annotations


class Context:
    """The part of a servicer context that says who calls."""

    def __init__(self, certificate: bytes | None = None, peer: str = "ipv4:10.0.0.7:41000") -> None:
        self._certificate = certificate
        self._peer = peer

    def auth_context(self):
        return {} if self._certificate is None else {"x509_pem_cert": [self._certificate]}

    def peer(self) -> str:
        return self._peer
