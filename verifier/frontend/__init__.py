"""Front-end processes: they terminate TLS and HTTP/2 and move columns; the core decides."""

from verifier.frontend._proxy import ForwardedCallers
from verifier.frontend._supervisor import FrontEnds

__all__ = ["ForwardedCallers", "FrontEnds"]
