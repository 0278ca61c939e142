"""Front-end processes: they terminate TLS and HTTP/2 and move columns; the core decides.

`Link` and `Session` are the two ends of the way that columns take: other processes of this program take it, too.
"""

from verifier.frontend._link import Link
from verifier.frontend._messages import Answer, FromCore, FromFrontEnd
from verifier.frontend._proxy import ForwardedCallers
from verifier.frontend._session import Session
from verifier.frontend._supervisor import FrontEnds

__all__ = ["Answer", "ForwardedCallers", "FromCore", "FromFrontEnd", "FrontEnds", "Link", "Session"]
