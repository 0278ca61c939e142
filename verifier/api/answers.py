"""Results to answers of the contract."""

from __future__ import annotations

import numpy as np

from verifier.api.requests import Prepared
from verifier.keys import Indices
from verifier.model import BatchResult, Bytes, Code, bits_of
from verifier.v1 import verifier_pb2 as pb

__all__ = ["digest_answer", "problems", "recover_answer", "refuse_keys", "verify_answer"]


def refuse_keys(result: BatchResult, refused: Indices) -> None:
    """Decides the items whose key index names no key: malformed, whatever the device said."""
    if not refused.size:
        return
    codes = result.codes.copy()
    codes[refused] = Code.KEY_INDEX
    result.codes = codes
    result.valid = _with_bits(result.valid, result.items, refused, False)
    result.decided = _with_bits(result.decided, result.items, refused, True)


def _with_bits(bitmap: Bytes, items: int, where: Indices, value: bool) -> Bytes:
    bits = bits_of(bitmap, items)
    bits[where] = value
    return np.packbits(bits, bitorder="little")


def problems(codes: Bytes) -> pb.Problems:
    """The items that are neither plainly valid nor plainly invalid. RETRY is what stages left undecided."""
    exceptional = np.flatnonzero((codes != Code.VALID) & (codes != Code.INVALID))
    found = codes[exceptional]
    return pb.Problems(
        index=exceptional.astype("<u4").tobytes(),
        code=np.where(found == Code.RETRY, np.uint8(Code.UNDECIDED), found).astype(np.uint8).tobytes(),
    )


def _timings(result: BatchResult) -> pb.Timings:
    t = result.timings
    return pb.Timings(queue_ns=t.queue_ns, device_ns=t.device_ns, total_ns=t.total_ns)


def verify_answer(request_id: int, prepared: Prepared, result: BatchResult, digest: bytes) -> pb.VerifyResponse:
    """The answer to Verify."""
    refuse_keys(result, prepared.refused)
    return pb.VerifyResponse(
        request_id=request_id,
        items=result.items,
        valid=(result.valid & result.decided).tobytes(),
        decided=result.decided.tobytes(),
        problems=problems(result.codes),
        served_by=result.served_by,
        device=result.device,
        timings=_timings(result),
        columns_digest=digest,
    )


def recover_answer(request_id: int, prepared: Prepared, result: BatchResult, digest: bytes) -> pb.RecoverResponse:
    """The answer to Recover: keys and addresses are zero where no key was recovered."""
    valid = result.valid & result.decided
    mask = bits_of(valid, result.items)
    outputs = result.outputs or tuple(np.zeros((result.items, width), np.uint8) for width in prepared.output_bytes)
    shown = [np.where(mask[:, None], output, np.uint8(0)).tobytes() for output in outputs]
    return pb.RecoverResponse(
        request_id=request_id,
        items=result.items,
        valid=valid.tobytes(),
        decided=result.decided.tobytes(),
        problems=problems(result.codes),
        keys=shown[0],
        addresses=shown[1] if prepared.wants_addresses and len(shown) > 1 else b"",
        served_by=result.served_by,
        device=result.device,
        timings=_timings(result),
        columns_digest=digest,
    )


def digest_answer(request_id: int, prepared: Prepared, result: BatchResult, digest: bytes) -> pb.DigestResponse:
    """The answer to Digest."""
    (width,) = prepared.output_bytes
    digests = result.outputs[0].tobytes() if result.outputs else bytes(result.items * width)
    return pb.DigestResponse(
        request_id=request_id,
        items=result.items,
        decided=result.decided.tobytes(),
        digests=digests,
        served_by=result.served_by,
        device=result.device,
        timings=_timings(result),
        columns_digest=digest,
    )
