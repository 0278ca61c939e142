"""Requests of each kind, right unless told otherwise."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from verifier.v1 import verifier_pb2 as pb


def offsets(*numbers: int) -> bytes:
    return np.array(numbers, "<u4").tobytes()


def sm2(**fields) -> pb.Scheme:
    scheme = {
        "algorithm": pb.ALGORITHM_SM2,
        "input_kind": pb.INPUT_KIND_DIGEST,
        "signature_encoding": pb.SIGNATURE_ENCODING_RAW_RS,
        "key_encoding": pb.KEY_ENCODING_RAW_XY,
    }
    return pb.Scheme(**{**scheme, **fields})


def ecdsa(**fields) -> pb.Scheme:
    return sm2(**{"algorithm": pb.ALGORITHM_ECDSA_SECP256K1, **fields})


def verify(items=2, scheme=None, **fields) -> pb.VerifyRequest:
    columns = {
        "input": pb.Column(data=bytes(32 * items)),
        "signature": pb.Column(data=bytes(64 * items)),
        "key": pb.Column(data=bytes(64 * items)),
    }
    return pb.VerifyRequest(items=items, scheme=scheme or sm2(), **{**columns, **fields})


def message(items=2) -> dict:
    return {"input": pb.Column(data=b"ab", offsets=offsets(0, 1, 2))} if items == 2 else {}


_column = st.builds(pb.Column, data=st.binary(max_size=300), offsets=st.binary(max_size=24))


_enum = st.integers(-1, 8)


_scheme = st.builds(
    pb.Scheme,
    algorithm=_enum,
    input_kind=_enum,
    signature_encoding=_enum,
    key_encoding=_enum,
    low_s=_enum,
    hash=_enum,
    digest_bytes=st.sampled_from([0, 1, 20, 32, 64, 2**32 - 1]),
    plugin=st.sampled_from(["", "", "sm2", "ecdsa@1.0.0", "@", "parity", "x@y@z", "\u0000"]),
)
