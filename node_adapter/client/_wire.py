"""The generated contract, untyped (its stubs want enum types that do not exist at run time), and columns on the wire.

Protobuf would copy a column into its message and out of it again, into memory that it takes from the system each
time; bench/client_call.py measures both ways. So columns are written beside the rest of a request's message, whose
fields may come in any order.
"""

from __future__ import annotations

from typing import Any

from verifier.v1 import verifier_pb2, verifier_pb2_grpc

__all__ = ["REQUESTS", "add_servicer", "column_field", "new_stub", "pb"]

pb: Any = verifier_pb2
add_servicer: Any = verifier_pb2_grpc.add_VerifierServicer_to_server
_GeneratedStub: Any = verifier_pb2_grpc.VerifierStub

_SERVICE = verifier_pb2.DESCRIPTOR.services_by_name["Verifier"]

# The messages of the calls that send columns.
REQUESTS: dict[str, Any] = {"Verify": pb.VerifyRequest, "Recover": pb.RecoverRequest, "Digest": pb.DigestRequest}


class _Stub:
    """The generated stub, but that the calls of columns take a request's bytes."""

    def __init__(self, channel: Any) -> None:
        self._generated = _GeneratedStub(channel)
        for name in REQUESTS:
            answer = getattr(pb, _SERVICE.methods_by_name[name].output_type.name)
            method = f"/{_SERVICE.full_name}/{name}"
            setattr(self, name, channel.unary_unary(method, response_deserializer=answer.FromString))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._generated, name)


new_stub: Any = _Stub


def column_field(method: str, name: str, data: memoryview, offsets: bytes) -> list[bytes | memoryview]:
    """The bytes of the field `name` of a method's request, a Column of these data and offsets, in parts."""
    size = data.nbytes
    head = _DATA + _varint(size) if size else b""
    tail = _OFFSETS + _varint(len(offsets)) if offsets else b""
    size += len(head) + len(tail) + len(offsets)
    return [_TAGS[method][name] + _varint(size) + head, data, tail, offsets]


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _tags(message: Any) -> dict[str, bytes]:
    """What stands before the length of each field that has one, by the field's name."""
    return {field.name: _varint(field.number << 3 | 2) for field in message.DESCRIPTOR.fields}


_TAGS = {method: _tags(request) for method, request in REQUESTS.items()}
_DATA, _OFFSETS = _tags(pb.Column)["data"], _tags(pb.Column)["offsets"]
