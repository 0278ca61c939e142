"""The gRPC front end: requests to batches, results to answers, errors to statuses. Thin."""

from verifier.api._access import Access, Denial
from verifier.api._calls import abort, caller_of, deadline_of
from verifier.api._cipher_keys import CipherKeys
from verifier.api._columnar import CallLimits, ColumnCalls, serialized
from verifier.api._health import HEALTH_SERVICE, SERVICE, Health
from verifier.api._interceptor import CallInterceptor
from verifier.api._lift import KINDS, ColumnarRequest, Given, RequestDigest
from verifier.api._listeners import probe_port, split_address
from verifier.api._operations import Backend, Operations, Pending
from verifier.api._shared import SharedLimits, SharedRegions, shared_columns
from verifier.api._shared_listener import SharedMemoryListener
from verifier.api._tls import Tls
from verifier.api._tuning import channel_options, tune_malloc
from verifier.api.cipher import CIPHER_SERVICE, CipherOptions, CipherService
from verifier.api.requests import Limits
from verifier.api.server import Listener, RpcServer
from verifier.api.service import ServiceOptions, VerifierService
from verifier.api.status import DETAILS_KEY, RefusedError, Status, status_of

__all__ = [
    "CIPHER_SERVICE",
    "DETAILS_KEY",
    "HEALTH_SERVICE",
    "KINDS",
    "SERVICE",
    "Access",
    "Backend",
    "CallInterceptor",
    "CallLimits",
    "CipherKeys",
    "CipherOptions",
    "CipherService",
    "ColumnCalls",
    "ColumnarRequest",
    "Denial",
    "Given",
    "Health",
    "Limits",
    "Listener",
    "Operations",
    "Pending",
    "RefusedError",
    "RequestDigest",
    "RpcServer",
    "ServiceOptions",
    "SharedLimits",
    "SharedMemoryListener",
    "SharedRegions",
    "Status",
    "Tls",
    "VerifierService",
    "abort",
    "caller_of",
    "channel_options",
    "deadline_of",
    "probe_port",
    "serialized",
    "shared_columns",
    "split_address",
    "status_of",
    "tune_malloc",
]
