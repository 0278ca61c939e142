"""Hyperledger Fabric: block files of a ledger, and single Block messages.

A block file holds blocks one after another, each behind its length as a varint, in the ledger's own serialisation
(common/ledger/blkstorage, block_serialization.go): number, data hash and previous hash; envelopes; metadata.
Verified are

- the creator's signature over every envelope's payload, and the endorsements: each over the proposal response's
  payload followed by the endorser's identity (core/endorser, protoutil/signeddata.go);
- in configuration blocks, the update's envelope and its signatures over signature header and update;
- the orderers' signatures in the metadata, over value, signature header and the block header in ASN.1.

All are ECDSA P-256 with SHA-256 in DER with s <= n / 2; keys come from the identities' X.509 certificates. Orderers
sign the header alone: its hashes over the envelopes and, from one block to the next, over the previous header are
compared. Whether identities are members, and endorsements enough, is the node's to decide.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache

from node_adapter.client import Algorithm, Hash, InputKind, LowS, Scheme, SignatureEncoding
from node_adapter.errors import FormatError
from node_adapter.formats._protobuf import Span, varint
from node_adapter.formats._signed import Record, Signed, Unsigned, Unverifiable
from node_adapter.formats.x509 import load_first, point_encoding

__all__ = ["records"]

_CONFIG, _CONFIG_UPDATE, _ENDORSER_TRANSACTION, _ORDERER_TRANSACTION = 1, 2, 3, 4
_TYPES = {
    1: "configuration",
    2: "configuration update",
    3: "endorser transaction",
    4: "orderer transaction",
}
_METADATA = ("signatures", "last configuration")  # the first metadata items; later ones are not signed

Found = Iterator[Signed | Unverifiable | Unsigned]


@dataclass(frozen=True, slots=True)
class _Block:
    number: int
    data_hash: Span
    previous_hash: Span
    envelopes: list[Span]
    metadata: list[Span]

    def header(self) -> bytes:
        """What orderers sign of the header: SEQUENCE of number, previous hash and data hash."""
        number = self.number.to_bytes(self.number.bit_length() // 8 + 1, "big")
        return _der(0x30, _der(2, number) + _der(4, self.previous_hash.content) + _der(4, self.data_hash.content))


def records(data: bytes, *, chain_id: str | None = None) -> Iterator[Record]:
    """The blocks of a block file, or of one Block message, in order.

    With `chain_id`, envelopes of another channel are not verifiable. Raises FormatError at the byte that is wrong;
    the blocks before it have been given by then.
    """
    if data[:1] == b"\x0a":  # no stored block is as short as 10 bytes
        yield replace(_record(_message(data), None, chain_id), stop=len(data))
        return
    before = None
    at = 0
    while at < len(data):
        length, start = varint(data, at, len(data))
        if not length:
            raise FormatError(at, "a block of no bytes")
        if length > len(data) - start:
            raise FormatError(at, f"a block of {length} bytes, but {len(data) - start} are left in the file")
        block = _stored(data, start, start + length)
        yield replace(_record(block, before, chain_id), stop=start + length)
        before = block
        at = start + length


def _message(data: bytes) -> _Block:
    """A Block message: header 1, data 2, metadata 3."""
    whole = Span(data, 0, len(data))
    whole.only(1, 2, 3)
    header, body = whole.one(1), whole.one(2)
    header.only(1, 2, 3)
    return _Block(header.number(1), header.one(3), header.one(2), body.all(1), whole.one(3).all(1))


def _stored(data: bytes, at: int, end: int) -> _Block:
    number, at = varint(data, at, end)
    data_hash, at = _bytes(data, at, end)
    previous_hash, at = _bytes(data, at, end)
    envelopes, at = _list(data, at, end)
    metadata, at = _list(data, at, end)
    if at != end:
        raise FormatError(at, f"{end - at} bytes behind block {number}")
    return _Block(number, data_hash, previous_hash, envelopes, metadata)


def _bytes(data: bytes, at: int, end: int) -> tuple[Span, int]:
    length, start = varint(data, at, end)
    if length > end - start:
        raise FormatError(at, f"{length} bytes announced, but {end - start} are left in the block")
    return Span(data, start, start + length), start + length


def _list(data: bytes, at: int, end: int) -> tuple[list[Span], int]:
    count, at = varint(data, at, end)
    spans = []
    for _ in range(count):
        span, at = _bytes(data, at, end)
        spans.append(span)
    return spans, at


def _record(block: _Block, before: _Block | None = None, channel: str | None = None) -> Record:
    found: list[Signed | Unverifiable | Unsigned] = []
    for place, envelope in enumerate(block.envelopes):
        where = f"block {block.number} transaction {place}"
        if not block.number and _is_given(envelope):
            found.append(Unsigned(where, "a channel's first configuration, which nodes are given and nobody signs"))
        else:
            found += _envelope(envelope, where, channel)
    found += _orderers(block)
    found += _hashes(block, before)
    return Record.of(f"block {block.number}", len(block.envelopes), found)


def _hashes(block: _Block, before: _Block | None) -> Iterator[Unverifiable]:
    where = f"block {block.number} header"
    hashed = hashlib.sha256(b"".join(envelope.content for envelope in block.envelopes)).digest()
    if hashed != block.data_hash.content:
        told = block.data_hash.content.hex() or "nothing"
        yield Unverifiable(where, f"data hash mismatch: the envelopes here have {hashed.hex()}, the header {told}")
    if before and block.number == before.number + 1:
        previous = hashlib.sha256(before.header()).digest()
        if previous != block.previous_hash.content:
            told = block.previous_hash.content.hex() or "nothing"
            why = f"previous hash mismatch: the block before has {previous.hex()}, the header names {told}"
            yield Unverifiable(where, why)


def _is_given(envelope: Span) -> bool:
    """Whether an envelope is a configuration by nobody, as configtxgen writes it into a channel's first block."""
    payload = envelope.one(1)
    return payload.one(1, 1).number(1) == _CONFIG and not envelope.one(2) and not payload.one(1, 2, 1)


def _envelope(envelope: Span, where: str, channel: str | None = None) -> Found:
    payload = envelope.one(1)
    given = payload.one(1, 1, 4)
    if channel is not None and given.content != channel.encode():
        told = given.content.decode(errors="replace")
        yield Unverifiable(where, f"signed for channel {told!r} at byte {given.start}, not for {channel!r}")
        return
    kind = payload.one(1, 1).number(1)
    creator = payload.one(1, 2, 1)
    yield _signed(f"{where} ({_TYPES.get(kind, f'type {kind}')}) creator", payload.content, envelope.one(2), creator)
    if kind == _ENDORSER_TRANSACTION:
        for number, action in enumerate(payload.one(2).all(1)):
            endorsed = action.one(2, 2)
            response = endorsed.one(1).content
            for place, endorsement in enumerate(endorsed.all(2)):
                endorser = endorsement.one(1)
                name = f"{where} action {number} endorsement {place}"
                yield _signed(name, response + endorser.content, endorsement.one(2), endorser)
    elif kind == _CONFIG and (update := payload.one(2, 2)):
        yield from _update(update, f"{where} last update")
    elif kind == _CONFIG_UPDATE:
        yield from _update_signatures(payload.one(2), where)
    elif kind == _ORDERER_TRANSACTION and (inner := payload.one(2)):
        yield from _envelope(inner, f"{where} inner")


def _update(envelope: Span, where: str) -> Found:
    payload = envelope.one(1)
    yield _signed(f"{where} creator", payload.content, envelope.one(2), payload.one(1, 2, 1))
    yield from _update_signatures(payload.one(2), where)


def _update_signatures(content: Span, where: str) -> Found:
    update = content.one(1).content
    for place, signature in enumerate(content.all(2)):
        header = signature.one(1)
        yield _signed(f"{where} signature {place}", header.content + update, signature.one(2), header.one(1))


def _orderers(block: _Block) -> Found:
    for name, metadata in zip(_METADATA, block.metadata, strict=False):
        value = metadata.one(1).content
        for place, signature in enumerate(metadata.all(2)):
            header = signature.one(1)
            where = f"block {block.number} orderer {name} {place}"
            if not header and signature.one(3):
                why = "the signer is a number in the channel's configuration (BFT orderer), which is not given"
                yield Unverifiable(where, why)
                continue
            message = value + header.content + block.header()
            yield _signed(where, message, signature.one(2), header.one(1))


def _signed(where: str, message: bytes, signature: Span, identity: Span) -> Signed | Unverifiable:
    """One signature by an identity (a SerializedIdentity: MSP id 1, certificate 2)."""
    if not signature and not identity:
        return Unverifiable(where, "neither signed nor by anybody")
    key = _key(identity.one(2).content)
    if isinstance(key, str):
        return Unverifiable(where, key)
    encoding = point_encoding(key)
    if encoding is None:
        return Unverifiable(where, f"the key is a point of {len(key)} bytes")
    scheme = Scheme(
        Algorithm.ECDSA_P256,
        InputKind.MESSAGE,
        SignatureEncoding.DER_STRICT,
        encoding,
        low_s=LowS.REQUIRE,
        hash=Hash.SHA256,
    )
    return Signed(where, scheme, message, signature.content, key)


@lru_cache(maxsize=4096)
def _key(certificate: bytes) -> bytes | str:
    """The P-256 point of an identity's certificate, or why there is none."""
    try:
        parsed = load_first(certificate, "identity")
    except (FormatError, ValueError) as error:
        return f"the identity is no X.509 certificate: {error}"
    return parsed.point if parsed.algorithm is Algorithm.ECDSA_P256 else "the identity's key is not on P-256"


def _der(tag: int, content: bytes) -> bytes:
    length = len(content)
    if length < 0x80:
        return bytes([tag, length]) + content
    size = (length.bit_length() + 7) // 8
    return bytes([tag, 0x80 | size]) + length.to_bytes(size, "big") + content
