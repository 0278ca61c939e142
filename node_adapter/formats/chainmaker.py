"""ChainMaker 2: every signature of a transaction, over its payload as it is serialised.

A file holds a Block or a Transaction message (pb-go, common/block.proto, common/transaction.proto), the BlockInfo or
TransactionInfo that a node answers with, or several of them, each behind its length as a varint; or JSON, one object
a line, for nodes of other systems that sign alike:

    {"message": "hexadecimal", "signature": "hexadecimal, DER", "signer": "PEM or hexadecimal DER"}

where `signer` is a certificate or a public key. Senders, endorsers and payers sign the payload: with an SM2 key
SM3(ZA || payload) with the default user id, with an ECDSA key its SHA-256. Signatures are DER. A signer that is a
hash, an alias or an address of a certificate elsewhere is named as not verifiable. The proposer's signature of a
block is not read: what it covers depends on the version of the chain.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from typing import Any

from node_adapter.client import Algorithm, Hash, InputKind, Scheme, SignatureEncoding
from node_adapter.errors import FormatError
from node_adapter.formats import _der
from node_adapter.formats._protobuf import Span, varint
from node_adapter.formats._signed import Record, Signed, Unsigned, Unverifiable
from node_adapter.formats.x509 import load_first, point_encoding, spki

__all__ = ["records"]

_CERTIFICATE, _PUBLIC_KEY = 0, 2
_MEMBERS = {1: "the hash of a certificate", 3: "a decentralised identifier", 4: "an alias", 5: "an address"}
_PEM_KEY = re.compile(rb"-----BEGIN PUBLIC KEY-----(.*?)-----END PUBLIC KEY-----", re.DOTALL)
_HASHES = {
    Algorithm.SM2: Hash.UNSPECIFIED,
    Algorithm.ECDSA_P256: Hash.SHA256,
    Algorithm.ECDSA_SECP256K1: Hash.SHA256,
}

Found = Iterator[Signed | Unverifiable | Unsigned]


def records(data: bytes, *, chain_id: str | None = None) -> Iterator[Record]:
    """The blocks of a file, the transactions that stand in none, or one record of all lines.

    With `chain_id`, what is signed for another chain is not verifiable; lines name none. Raises FormatError at the
    byte that is wrong; what stands before it has been given by then.
    """
    if data[:2] == b'{"':
        yield from _lines(data)
        return
    at = number = 0
    while at < len(data):
        start, length = at, len(data)
        if data[:1] != b"\x0a":  # field 1 of a message, which stands alone
            length, start = varint(data, at, len(data))
            if not length:
                raise FormatError(at, "a message of no bytes")
            if length > len(data) - start:
                raise FormatError(at, f"a message of {length} bytes, but {len(data) - start} are left")
        yield replace(_message(Span(data, start, start + length), number, chain_id), stop=start + length)
        at, number = start + length, number + 1


def _message(message: Span, number: int, chain_id: str | None) -> Record:
    head = message.one(1)
    if _is_message(head.first()):
        message, head = head, head.first()  # a node's answer: what was asked for, and more about it
    message.only(1, 2, 3, 4, 5)
    if not head:
        raise FormatError(message.start, "neither a header nor a payload: this is no Block and no Transaction")
    if head.is_bytes(1):  # a payload begins with the chain's name, a header with a version
        return Record.of(f"transaction {number}", 1, _transaction(message, f"transaction {number}", chain_id, False))
    height = head.number(4)
    name = f"block {height}"
    transactions = message.all(3)
    found = [
        item
        for place, tx in enumerate(transactions)
        for item in _transaction(tx, f"{name} transaction {place}", chain_id, height == 0)
    ]
    if head.number(8) != len(transactions):
        why = f"the header counts {head.number(8)} transactions; {len(transactions)} are here"
        found.append(Unverifiable(f"{name} header", why))
    return Record.of(name, len(transactions), found)


def _is_message(span: Span) -> bool:
    """Whether these bytes are a message of the kinds above and not a chain's name: those begin with small tags."""
    return bool(span) and span.data[span.start] < 0x20


def _transaction(transaction: Span, where: str, chain_id: str | None, genesis: bool) -> Found:
    payload = transaction.one(1).content
    chain = transaction.one(1, 1)
    if chain_id is not None and chain.content != chain_id.encode():
        told = chain.content.decode(errors="replace")
        yield Unverifiable(where, f"signed for chain {told!r} at byte {chain.start}, not for {chain_id!r}")
        return
    if not transaction.one(2):
        if genesis:
            yield Unsigned(where, "a chain's first configuration, which nodes are given and nobody signs")
        else:
            yield Unverifiable(where, "nobody sent it: its sender is missing")
    for name, entries in (("sender", 2), ("endorser", 3), ("payer", 5)):
        for place, entry in enumerate(transaction.all(entries)):
            suffix = f" {place}" if name == "endorser" else ""
            yield _entry(f"{where} {name}{suffix}", payload, entry)


def _entry(where: str, payload: bytes, entry: Span) -> Signed | Unverifiable:
    member = entry.one(1)
    kind = member.number(2)
    if kind not in (_CERTIFICATE, _PUBLIC_KEY):
        return Unverifiable(where, f"the signer is {_MEMBERS.get(kind, f'of kind {kind}')}, and its key is not given")
    return _signed(where, payload, entry.one(2).content, member.one(3).content)


def _signed(where: str, message: bytes, signature: bytes, signer: bytes) -> Signed | Unverifiable:
    try:
        algorithm, point = _key(signer)
    except (FormatError, ValueError) as error:
        return Unverifiable(where, f"the signer is neither a certificate nor a public key: {error}")
    encoding = point_encoding(point)
    if algorithm is None or encoding is None:
        return Unverifiable(where, "the signer's key is not on SM2's curve, P-256 or secp256k1")
    scheme = Scheme(algorithm, InputKind.MESSAGE, SignatureEncoding.DER_STRICT, encoding, hash=_HASHES[algorithm])
    return Signed(where, scheme, message, signature, point)


@lru_cache(maxsize=4096)
def _key(signer: bytes) -> tuple[Algorithm | None, bytes]:
    """Algorithm and point of a certificate or a public key, PEM or DER."""
    der = signer
    if pem := _PEM_KEY.search(signer):
        try:
            der = base64.b64decode(b"".join(pem[1].split()), validate=True)
        except binascii.Error as error:
            raise FormatError(pem.start(1), f"base64 of a key: {error}") from None
    elif b"-----BEGIN" in signer:
        certificate = load_first(signer, "signer")
        return certificate.algorithm, certificate.point
    element = _der.read(der, tag=_der.SEQUENCE)
    if element.stop != len(der):
        raise FormatError(element.stop, f"{len(der) - element.stop} bytes behind the key")
    if len(element.children()) == 3:
        certificate = load_first(der, "signer")
        return certificate.algorithm, certificate.point
    return spki(element)


def _lines(data: bytes) -> Iterator[Record]:
    found: list[Signed | Unverifiable] = []
    at = 0
    error = None
    for number, line in enumerate(data.splitlines(keepends=True)):
        if line.strip():
            try:
                found.append(_line(json.loads(line), f"line {number + 1}"))
            except json.JSONDecodeError as problem:
                error = FormatError(at + len(line.decode()[: problem.pos].encode()), f"not JSON: {problem.msg}")
            except UnicodeDecodeError as problem:
                error = FormatError(at + problem.start, f"not UTF-8: {problem.reason}")
            except (KeyError, TypeError, ValueError) as problem:
                error = FormatError(at, f"not message, signature and signer: {type(problem).__name__} {problem}")
        if error:
            break
        at += len(line)
    yield replace(Record.of("lines", len(found), found), stop=at)
    if error:
        raise error


def _line(entry: Any, where: str) -> Signed | Unverifiable:
    signer = entry["signer"]
    key = signer.encode() if "-----BEGIN" in signer else bytes.fromhex(signer)
    return _signed(where, bytes.fromhex(entry["message"]), bytes.fromhex(entry["signature"]), key)
