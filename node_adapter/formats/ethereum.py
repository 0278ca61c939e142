"""Ethereum blocks in RLP, one after another, or in an era1 file: the senders' signatures of every transaction type.

Transaction types: legacy (with and without EIP-155), 1 (EIP-2930), 2 (EIP-1559), 3 (EIP-4844, also as nodes hand it
on, with its blobs) and 4 (EIP-7702, whose authorisations are signed, too). A block does not name senders: they are
recovered from the signatures, over Keccak-256 of what is signed, which the daemon computes. That finds a sender for
almost any transaction: whether the transactions are those of the header is told by its root over them, which is
compared.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from node_adapter.client import Algorithm, Hash, InputKind, LowS, Scheme, SignatureEncoding
from node_adapter.errors import FormatError
from node_adapter.formats import _era1
from node_adapter.formats._rlp import Item, encode_integer, encode_list, read
from node_adapter.formats._signed import Record, Signed, Unverifiable
from node_adapter.formats._trie import transactions_root

__all__ = ["records"]

_SCHEME = Scheme(
    Algorithm.ECDSA_SECP256K1,
    InputKind.MESSAGE,
    SignatureEncoding.RAW_RSV,
    low_s=LowS.REQUIRE,
    hash=Hash.KECCAK256,
)
# Before Homestead a high s was allowed, and only transactions without EIP-155 can be so old. A block is younger for
# certain behind the main net's fork, with the base fee that came later, and on networks that began with the fork.
_OLD_SCHEME = Scheme(Algorithm.ECDSA_SECP256K1, InputKind.MESSAGE, SignatureEncoding.RAW_RSV, hash=Hash.KECCAK256)

_HOMESTEAD = 1_150_000
_OLD_CHAINS = (None, 1, 61)  # not told; Ethereum and Ethereum Classic, whose first blocks are the same
_FIELDS_BEFORE_BASE_FEE = 15

# What the fields of a transaction are before y parity, r and s: "n" a number, "t" an address or nothing, "T" an
# address, "d" data, "a" an access list, "h" hashes, "l" authorisations.
_LEGACY_FIELDS = "nnntnd"
_FIELDS = {1: "nnnntnda", 2: "nnnnntnda", 3: "nnnnnTndanh", 4: "nnnnnTndal"}
_AUTHORISATION_FIELDS = "nTn"
_AUTHORISATIONS = 9  # their field in type 4
_BLOBS = 3  # the type that nodes hand on with its blobs: [transaction, (a version,) blobs, commitments, proofs]
_AUTHORISATION_MAGIC = b"\x05"
_TRANSACTIONS_ROOT, _NUMBER = 4, 8  # their fields in the header


def records(data: bytes, *, chain_id: int | None = None) -> Iterator[Record]:
    """The blocks of a file, in order.

    With `chain_id`, what is signed for another chain is not verifiable. Raises FormatError at the byte that is
    wrong, in an era1 file at the record; the blocks before it have been given by then.
    """
    if data[:2] == _era1.VERSION:
        for offset, head, body in _era1.blocks(data):
            try:
                record = _block(_whole(head), _whole(body).children(least=2)[0], chain_id)
            except FormatError as error:
                raise FormatError(
                    offset, f"{error.problem}, at byte {error.offset} of what it uncompresses to"
                ) from None
            yield replace(record, stop=offset)
        return
    at = 0
    while at < len(data):
        block = read(data, at)
        header, transactions = block.children(least=3)[:2]
        yield replace(_block(header, transactions, chain_id), stop=block.stop)
        at = block.stop


def _whole(data: bytes) -> Item:
    """The item that `data` is."""
    item = read(data)
    if item.stop != len(data):
        raise FormatError(item.stop, f"{len(data) - item.stop} bytes behind an item")
    return item


def _block(header: Item, transactions: Item, chain_id: int | None) -> Record:
    fields = header.children(least=_NUMBER + 1)
    number = fields[_NUMBER].integer(8)
    young = number >= _HOMESTEAD or len(fields) > _FIELDS_BEFORE_BASE_FEE or chain_id not in _OLD_CHAINS
    name = f"block {number}"
    items = transactions.children()
    found = [
        entry
        for place, item in enumerate(items)
        for entry in _transaction(item, f"{name} transaction {place}", chain_id, young)
    ]
    root = transactions_root([item.raw if item.is_list else _without_blobs(item) for item in items])
    told = fields[_TRANSACTIONS_ROOT].string(32)
    if root != told:
        why = f"transactions root mismatch: the transactions here have {root.hex()}, the header {told.hex()}"
        found.append(Unverifiable(f"{name} header", why))
    return Record.of(name, len(items), found)


def _transaction(item: Item, where: str, chain_id: int | None, young: bool) -> Iterator[Signed | Unverifiable]:
    if item.is_list:
        yield _legacy(item, where, chain_id, young)
        return
    kind = item.string()[:1]
    if not kind:
        raise FormatError(item.at, "an empty transaction")
    forms = _FIELDS.get(kind[0])
    if forms is None:
        yield Unverifiable(where, f"transaction type {kind[0]} at byte {item.start} is not known")
        return
    count = len(forms)
    body = _body(item)
    fields = body.children()
    if len(fields) != count + 3:
        raise FormatError(body.at, f"transaction of type {kind[0]} with {len(fields)} fields; it has {count + 3}")
    _check(fields, forms)
    yield _signed(where, fields[0], kind + _list(fields[:count]), fields[count:], chain_id)
    if kind[0] == 4:
        for place, entry in enumerate(fields[_AUTHORISATIONS].children()):
            parts = entry.children()
            if len(parts) != 6:
                raise FormatError(entry.at, f"authorisation with {len(parts)} fields; it has 6")
            _check(parts, _AUTHORISATION_FIELDS)
            message = _AUTHORISATION_MAGIC + _list(parts[:3])
            # An authorisation with chain id 0 holds on every chain.
            told = chain_id if parts[0].integer() else None
            yield _signed(f"{where} authorisation {place}", parts[0], message, parts[3:], told)


def _body(item: Item) -> Item:
    """The list behind a transaction's type, without blobs."""
    body = read(item.data, item.start + 1, item.stop)
    if body.stop != item.stop:
        raise FormatError(body.stop, f"{item.stop - body.stop} bytes behind a transaction")
    if item.data[item.start] == _BLOBS and body.is_list:
        parts = body.children()
        if len(parts) in (4, 5) and parts[0].is_list:
            return parts[0]
    return body


def _without_blobs(item: Item) -> bytes:
    """A typed transaction as blocks hold it."""
    if item.data[item.start] != _BLOBS:
        return item.string()
    return bytes([_BLOBS]) + _body(item).raw


def _check(fields: list[Item], forms: str) -> None:
    """Raises FormatError at the first field that is not of its form."""
    for field, form in zip(fields, forms, strict=False):
        if form == "n":
            field.integer()
        elif form == "d" or (form == "t" and field.start == field.stop):
            field.string()
        elif form in "tT":
            field.string(20)
        elif form == "h":
            for entry in field.children():
                entry.string(32)
        elif form == "a":
            for entry in field.children():
                parts = entry.children()
                if len(parts) != 2:
                    raise FormatError(entry.at, f"access to {len(parts)} items; it has an address and its slots")
                _check(parts, "Th")


def _legacy(item: Item, where: str, chain_id: int | None, young: bool) -> Signed | Unverifiable:
    fields = item.children()
    if len(fields) != 9:
        raise FormatError(item.at, f"legacy transaction with {len(fields)} fields; it has 9")
    _check(fields, _LEGACY_FIELDS)
    v = fields[6].integer()
    if v in (27, 28):
        scheme = _SCHEME if young else _OLD_SCHEME
        return Signed(where, scheme, _list(fields[:6]), _rsv(fields[7], fields[8], v - 27), recover=True)
    if v < 35:
        return Unverifiable(where, f"v is {v} at byte {fields[6].at}; it is 27, 28, or 35 and more")
    chain = (v - 35) // 2
    if chain_id is not None and chain != chain_id:
        return _foreign(where, chain, fields[6].at, chain_id)
    suffix = encode_integer(chain) + b"\x80\x80"
    message = encode_list(item.data[fields[0].at : fields[5].stop] + suffix)
    return Signed(where, _SCHEME, message, _rsv(fields[7], fields[8], (v - 35) % 2), recover=True)


def _signed(
    where: str, chain: Item, message: bytes, signature: list[Item], told: int | None
) -> Signed | Unverifiable:
    if told is not None and chain.integer() != told:
        return _foreign(where, chain.integer(), chain.at, told)
    parity = signature[0].integer(32)
    if parity > 1:
        return Unverifiable(where, f"y parity is {parity} at byte {signature[0].at}; it is 0 or 1")
    return Signed(where, _SCHEME, message, _rsv(signature[1], signature[2], parity), recover=True)


def _foreign(where: str, chain: int, at: int, told: int) -> Unverifiable:
    return Unverifiable(where, f"signed for chain {chain} at byte {at}, not for {told}")


def _rsv(r: Item, s: Item, parity: int) -> bytes:
    return r.integer().to_bytes(32, "big") + s.integer().to_bytes(32, "big") + bytes([parity])


def _list(fields: list[Item]) -> bytes:
    """The list of these neighbouring fields, taken as they stand."""
    return encode_list(fields[0].data[fields[0].at : fields[-1].stop])
