"""The parsers against straight Python on values that hypothesis makes and shrinks."""

from __future__ import annotations

import pytest
from _ecdsa_cases import be32, der
from _probe import EncodingProbe, expected_key, expected_signature
from _reference import CURVES, spki
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from verifier.model import Code

PROFILE = settings(max_examples=300, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))


@pytest.fixture(scope="module")
def probe() -> EncodingProbe:
    return EncodingProbe()


numbers = st.one_of(
    st.integers(0, 300),
    st.integers(0, 2**264),
    st.sampled_from([2**255 - 1, 2**255, 2**256 - 1, 2**256] + [c.n for c in CURVES.values()]),
)
bytes_of_der = st.sampled_from([0x00, 0x01, 0x02, 0x03, 0x20, 0x30, 0x7F, 0x80, 0x81, 0x82, 0x84, 0x88, 0xFF])


@st.composite
def lengths(draw, size):
    """A length in any form, mostly the right one."""
    size = draw(st.one_of(st.just(size), st.integers(0, 2 * size + 2)))
    octets = draw(st.integers(0, 6))
    if octets == 0 and size < 128:
        return bytes([size])
    octets = max(octets, (size.bit_length() + 7) // 8)
    return bytes([0x80 + octets]) + size.to_bytes(octets, "big")


@st.composite
def elements(draw, tag, content):
    shown = draw(st.one_of(st.just(tag), bytes_of_der)) if draw(st.integers(0, 9)) == 0 else tag
    form = draw(lengths(len(content))) if draw(st.booleans()) else None
    if form is None:
        form = bytes([len(content)]) if len(content) < 128 else b"\x81" + bytes([len(content) % 256])
    return bytes([shown]) + form + content


@st.composite
def nearly_der(draw):
    """SEQUENCE { INTEGER, INTEGER } with one thing or another wrong about it."""
    body = b""
    for _ in range(draw(st.sampled_from([2, 2, 2, 2, 1, 3]))):
        number = draw(numbers)
        content = number.to_bytes((number.bit_length() + 7) // 8 + draw(st.integers(0, 2)), "big")
        body += draw(elements(0x02, content))
    return draw(elements(0x30, body)) + draw(st.one_of(st.just(b""), st.binary(max_size=3)))


@st.composite
def edited(draw, values):
    """A value with a slice replaced."""
    value = draw(values)
    begin = draw(st.integers(0, len(value)))
    end = draw(st.integers(begin, min(len(value), begin + 4)))
    return value[:begin] + draw(st.binary(max_size=4)) + value[end:]


signatures = st.one_of(
    nearly_der(),
    st.builds(der, numbers, numbers),
    edited(st.builds(der, numbers, numbers)),
    st.binary(max_size=150),
    st.lists(bytes_of_der, max_size=40).map(bytes),
)


@PROFILE
@given(st.lists(signatures, min_size=1, max_size=20))
def test_der(probe, values):
    for encoding in ("DER_STRICT", "DER_LAX"):
        assert probe.signatures(encoding, values) == [expected_signature(encoding, value) for value in values]


@PROFILE
@given(numbers, numbers)
def test_strict_is_inside_lax(probe, r, s):
    value = der(r, s)
    strict, lax = probe.signatures("DER_STRICT", [value])[0], probe.signatures("DER_LAX", [value])[0]
    assert strict == lax == ((r, s, 0) if max(r, s) < 2**256 else Code.OUT_OF_RANGE)


@PROFILE
@given(st.lists(st.binary(max_size=130), min_size=1, max_size=20))
def test_raw(probe, values):
    values += [value.ljust(size, b"\x11")[:size] for value in values for size in (64, 65, 128)]
    for encoding in ("RAW_RS", "RAW_RSV", "RAW_RS_KEY"):
        assert probe.signatures(encoding, values) == [expected_signature(encoding, value) for value in values]


points = st.builds(
    lambda prefix, x, y, size: (bytes([prefix]) + be32(x) + be32(y))[:size],
    st.sampled_from([2, 3, 4, 4, 6, 7, 0, 5]),
    st.integers(0, 2**256 - 1),
    st.integers(0, 2**256 - 1),
    st.sampled_from([33, 65, 65, 64, 1]),
)


@pytest.mark.parametrize("curve", CURVES.values(), ids=CURVES)
@PROFILE
@given(data=st.data())
def test_keys(probe, curve, data):
    encoded = st.builds(spki, st.sampled_from(list(CURVES.values())), points)
    values = data.draw(
        st.lists(
            st.one_of(points, points.map(lambda p: p[1:]), encoded, edited(encoded), st.binary(max_size=130)),
            min_size=1,
        )
    )
    for encoding in ("RAW_XY", "SEC1_UNCOMPRESSED", "SEC1_COMPRESSED", "SPKI", "IN_SIGNATURE"):
        assert probe.keys(curve, encoding, values) == [expected_key(curve, encoding, value) for value in values]
