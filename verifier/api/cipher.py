"""The service `verifier.v1.CipherService`. It needs `submit`, look-ups of plugins, and a key store."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import grpc
import numpy as np

from verifier.api._calls import CallLimit, caller_of, deadline_of, guarded, parser, wait_in_call
from verifier.api._cipher_keys import KeyStore
from verifier.api._cipher_modes import CELL_BYTES, Done
from verifier.api._cipher_requests import CipherRequests, check_key
from verifier.api._cipher_streams import CipherStreams, HeldBytes
from verifier.api._cipher_stripes import offsets_of
from verifier.api.answers import problems
from verifier.api.requests import Catalogue, Limits
from verifier.ciphers import CIPHERS
from verifier.errors import NotServedError
from verifier.model import Batch, BatchResult, Code
from verifier.scheduling import Scheduler
from verifier.telemetry import Metrics
from verifier.v1 import cipher_pb2 as pb
from verifier.v1 import verifier_pb2

__all__ = ["CIPHER_SERVICE", "CipherOptions", "CipherService"]

_METHODS = pb.DESCRIPTOR.services_by_name["CipherService"]
CIPHER_SERVICE: str = _METHODS.full_name


@dataclass(frozen=True, slots=True)
class CipherOptions:
    """Settings of the service."""

    limits: Limits
    calls: int  # handled at once
    streams: int
    stream_in_flight: int  # chunks of one stream that are not answered yet
    delete_wait_s: float = 10.0  # how long DeleteKey waits for calls that have the key
    stream_held_bytes: int = 16 << 20  # of one message that a stream decrypts in GCM
    held_bytes: int = 256 << 20  # of all of them together


class CipherService:
    """Thin: requests become messages, messages become batches, the scheduler does the work."""

    def __init__(
        self, scheduler: Scheduler, catalogue: Catalogue, keys: KeyStore, options: CipherOptions, metrics: Metrics
    ) -> None:
        self._scheduler = scheduler
        self._catalogue = catalogue
        self._keys = keys
        self._options = options
        self._metrics = metrics
        self._calls = CallLimit(options.calls)
        self._requests = CipherRequests(catalogue, options.limits)
        self.streams = CipherStreams(
            self._requests,
            keys,
            scheduler,
            metrics,
            options.stream_in_flight,
            options.stream_held_bytes,
            HeldBytes(options.held_bytes),
            CallLimit(options.streams),
        )

    def handler(self) -> grpc.GenericRpcHandler[Any, Any]:
        """What a gRPC server is given. Requests that do not parse are refused as INVALID_ARGUMENT."""
        unary: dict[str, Callable[[Any, grpc.ServicerContext], Any]] = {
            "CreateKey": self._create_key,
            "DeleteKey": self._delete_key,
            "Transform": self._transform,
            "GetCiphers": self._get_ciphers,
        }
        handlers: dict[str, Any] = {}
        for method in _METHODS.methods:
            parse = parser(getattr(pb, method.input_type.name))
            serialize = getattr(pb, method.output_type.name).SerializeToString
            if method.client_streaming:
                handlers[method.name] = grpc.stream_stream_rpc_method_handler(self.streams.handle, parse, serialize)
            else:
                call = guarded(method.name, self._metrics, unary[method.name])
                handlers[method.name] = grpc.unary_unary_rpc_method_handler(call, parse, serialize)
        return grpc.method_handlers_generic_handler(_METHODS.full_name, handlers)

    def _create_key(self, request: pb.CreateKeyRequest, context: grpc.ServicerContext) -> pb.CreateKeyResponse:
        key = request.key
        cipher = check_key(request.algorithm, key)
        self._requests.check_loaded(cipher)
        return pb.CreateKeyResponse(key=self._keys.create(cipher.name, key, caller_of(context)))

    def _delete_key(self, request: pb.DeleteKeyRequest, context: grpc.ServicerContext) -> pb.DeleteKeyResponse:
        with self._calls:
            left = context.time_remaining()
            timeout = self._options.delete_wait_s if left is None else min(left - 0.2, self._options.delete_wait_s)
            self._keys.delete(request.key, caller_of(context), timeout)
            return pb.DeleteKeyResponse()

    def _transform(self, request: pb.TransformRequest, context: grpc.ServicerContext) -> pb.TransformResponse:
        with self._calls:
            read = self._requests.transform(request)
            deadline, caller = deadline_of(context), caller_of(context)

            def run(batch: Batch) -> BatchResult:
                future = self._scheduler.submit(batch, deadline=deadline, priority=read.priority, caller=caller)
                return wait_in_call(future, context, deadline)

            with self._keys.use("keys", read.keys, read.scheme.cipher.name, caller) as keys:
                if read.short:
                    index = np.zeros(request.items, np.uint32) if read.index is None else read.index
                    done = read.operations.short(read.messages, keys.column(index), run)
                else:
                    done = read.operations.long(
                        read.messages, keys.constant(), lambda n: keys.column(np.zeros(n, np.uint32)), run
                    )
            return _answer(request.request_id, done)

    def _get_ciphers(self, _: pb.GetCiphersRequest, __: grpc.ServicerContext) -> pb.GetCiphersResponse:
        limits = self._options.limits
        return pb.GetCiphersResponse(
            ciphers=[self._cipher(name) for name in CIPHERS],
            max_items=limits.max_items,
            max_batch_bytes=limits.max_batch_bytes,
            max_chunk_bytes=limits.max_batch_bytes // 2,
            max_held_bytes=self._options.stream_held_bytes,
            max_short_bytes=CELL_BYTES,
        )

    def _cipher(self, name: str) -> pb.Cipher:
        cipher = CIPHERS[name]
        shown = pb.Cipher(
            algorithm=f"CIPHER_ALGORITHM_{name}",
            block_bytes=cipher.block_bytes,
            key_bytes=cipher.key_bytes,
            modes=[f"CIPHER_MODE_{mode}" for mode in cipher.modes],
            plugin=cipher.plugin,
        )
        try:
            instance = self._catalogue.resolve("ecb_encrypt", name).instance
        except NotServedError:
            return shown
        shown.served_by = instance.label
        shown.devices.extend(worker.device.id for worker in instance.workers)
        return shown


def _answer(request_id: int, done: Done) -> pb.TransformResponse:
    valid = done.codes == Code.VALID
    tags = b"" if done.tags is None else np.where(valid[:, None], done.tags, np.uint8(0)).tobytes()
    return pb.TransformResponse(
        request_id=request_id,
        items=valid.size,
        valid=np.packbits(valid, bitorder="little").tobytes(),
        decided=np.packbits(done.codes != Code.UNDECIDED, bitorder="little").tobytes(),
        problems=problems(done.codes),
        data=verifier_pb2.Column(data=done.data.tobytes(), offsets=offsets_of(done.lengths).astype("<u4").tobytes()),
        tags=tags,
        served_by=done.served_by,
        device=done.device,
        timings=verifier_pb2.Timings(
            queue_ns=done.timings.queue_ns, device_ns=done.timings.device_ns, total_ns=done.timings.total_ns
        ),
    )
