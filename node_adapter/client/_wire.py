"""The generated contract, untyped (its stubs want enum types that do not exist at run time), and columns on the wire.

Protobuf would copy a column into its message and out of it again, into memory that it takes from the system each
time; bench/client_call.py measures both ways. So columns are written beside the rest of a request's message, whose
fields may come in any order.
"""

from __future__ import annotations

from typing import Any

from verifier.v1 import verifier_pb2, verifier_pb2_grpc

__all__ = ["add_servicer", "column_field", "new_stub", "pb"]

pb: Any = verifier_pb2
add_servicer: Any = verifier_pb2_grpc.add_VerifierServicer_to_server
_GeneratedStub: Any = verifier_pb2_grpc.VerifierStub

_SERVICE = verifier_pb2.DESCRIPTOR.services_by_name["Verifier"]
_COLUMN = verifier_pb2.Column.DESCRIPTOR.fields_by_name
_BYTES = 2  # the wire type of what has a length
_COLUMNAR = ("Verify", "Recover", "Digest")


class _Stub:
    """The generated stub, but that the calls of columns take a request's bytes."""

    def __init__(self, channel: Any) -> None:
        self._generated = _GeneratedStub(channel)
        for name in _COLUMNAR:
            answer = getattr(pb, _SERVICE.methods_by_name[name].output_type.name)
            method = f"/{_SERVICE.full_name}/{name}"
            setattr(self, name, channel.unary_unary(method, response_deserializer=answer.FromString))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._generated, name)


new_stub: Any = _Stub


def column_field(request: Any, name: str, data: memoryview, offsets: bytes) -> list[bytes | memoryview]:
    """The bytes of a request's field `name`, a Column of these data and offsets, in parts to be joined."""
    parts: list[bytes | memoryview] = []
    if data.nbytes:
        parts += [_head(_COLUMN["data"].number, data.nbytes), data]
    if offsets:
        parts += [_head(_COLUMN["offsets"].number, len(offsets)), offsets]
    size = sum(memoryview(part).nbytes for part in parts)
    return [_head(request.DESCRIPTOR.fields_by_name[name].number, size), *parts]


def _head(number: int, nbytes: int) -> bytes:
    """A field's tag and length."""
    return _varint(number << 3 | _BYTES) + _varint(nbytes)


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
