"""The service `verifier.v1.Verifier`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import grpc

from verifier.api._calls import caller_of, deadline_of, guarded, parser, wait_in_call
from verifier.api._columnar import CallLimits, ColumnCalls
from verifier.api._operations import Operations
from verifier.api._shared import SharedRegions
from verifier.api.answers import problems
from verifier.api.requests import Catalogue, Limits, Requests
from verifier.errors import BackendError
from verifier.keys import KeyScheduler, KeySets, KeyTables
from verifier.model import Batch, BatchResult, Code
from verifier.scheduling import Priority
from verifier.telemetry import Metrics
from verifier.v1 import verifier_pb2 as pb

__all__ = ["ServiceOptions", "VerifierService"]

_METHODS = pb.DESCRIPTOR.services_by_name["Verifier"]


@dataclass(frozen=True, slots=True)
class ServiceOptions:
    """Settings of the service."""

    limits: Limits
    max_message_bytes: int
    calls: CallLimits
    preferred_items: Callable[[], int] = lambda: 65536


class VerifierService:
    """Thin: requests become batches, the scheduler does the work, results become answers.

    `operations` are the calls that are columns, for front ends that have those calls from their own clients;
    `scheduler` is where batches go that are in this process already.
    """

    def __init__(
        self,
        scheduler: KeyScheduler,
        catalogue: Catalogue,
        key_sets: KeySets,
        options: ServiceOptions,
        metrics: Metrics,
        shared: SharedRegions | None = None,
        key_tables: KeyTables | None = None,
    ) -> None:
        self.scheduler = scheduler
        self._catalogue = catalogue
        self._key_sets = key_sets
        self._key_tables = key_tables
        self._options = options
        self._metrics = metrics
        self._requests = Requests(catalogue, options.limits, key_sets)
        self.operations = Operations(self._requests, scheduler, shared or SharedRegions())
        self._columns = ColumnCalls(self.operations, metrics, options.calls)
        self._calls = self._columns.calls
        self.streams = self._columns.streams

    def handler(self) -> grpc.GenericRpcHandler[Any, Any]:
        """What a gRPC server is given. Requests that do not parse are refused as INVALID_ARGUMENT."""
        unary: dict[str, Callable[[Any, grpc.ServicerContext], Any]] = {
            "RegisterKeys": self._register_keys,
            "ReleaseKeys": self._release_keys,
            "GetLimits": self._get_limits,
        }
        handlers = self._columns.handlers()
        for name, handle in unary.items():
            method = _METHODS.methods_by_name[name]
            parse = parser(getattr(pb, method.input_type.name))
            serialize = getattr(pb, method.output_type.name).SerializeToString
            call = guarded(name, self._metrics, handle)
            handlers[name] = grpc.unary_unary_rpc_method_handler(call, parse, serialize)
        return grpc.method_handlers_generic_handler(_METHODS.full_name, handlers)

    def _run_batch(self, batch: Batch, priority: Priority, context: grpc.ServicerContext) -> BatchResult:
        deadline = deadline_of(context)
        future = self.scheduler.submit(batch, deadline=deadline, priority=priority, caller=caller_of(context))
        return wait_in_call(future, context, deadline)

    def _register_keys(
        self, request: pb.RegisterKeysRequest, context: grpc.ServicerContext
    ) -> pb.RegisterKeysResponse:
        with self._calls:
            keys, check = self._requests.keys(request)
            wrong = pb.Problems()
            if check is not None:
                result = self._run_batch(check, Priority.BULK, context)
                if (result.codes == Code.UNDECIDED).any():
                    raise BackendError("the keys could not be checked: no device decided them")
                keys = self._requests.usable(keys, result)
                codes = result.codes.copy()
                codes[keys.usable] = Code.VALID
                wrong = problems(codes)
            handle = self._key_sets.add(keys)
            if self._key_tables is not None:
                self._key_tables.register(self._key_sets.get(handle))
            return pb.RegisterKeysResponse(key_set=handle, items=keys.items, problems=wrong)

    def _release_keys(self, request: pb.ReleaseKeysRequest, _: grpc.ServicerContext) -> pb.ReleaseKeysResponse:
        last = self._key_sets.release(request.key_set)
        if last is not None and self._key_tables is not None:
            self._key_tables.release(last)
        return pb.ReleaseKeysResponse()

    def _get_limits(self, _: pb.GetLimitsRequest, __: grpc.ServicerContext) -> pb.GetLimitsResponse:
        limits = self._options.limits
        operations = [
            pb.ServedOperation(
                operation=operation.name,
                algorithm=operation.algorithm,
                served_by=instance.label,
                digest=instance.digest,
                devices=_device_ids(instance.workers),
            )
            for instance in self._catalogue.active()
            for operation in instance.manifest.operations
            if operation.role == "call"
        ]
        return pb.GetLimitsResponse(
            max_items=limits.max_items,
            max_batch_bytes=limits.max_batch_bytes,
            max_message_bytes=self._options.max_message_bytes,
            preferred_items=min(self._options.preferred_items(), limits.max_items),
            operations=operations,
        )


def _device_ids(workers: Sequence[Any]) -> list[str]:
    return [worker.device.id for worker in workers]
