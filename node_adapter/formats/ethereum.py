"""Ethereum blocks in RLP, one after another: the senders' signatures of every transaction type.

Transaction types: legacy (with and without EIP-155), 1 (EIP-2930), 2 (EIP-1559), 3 (EIP-4844) and 4 (EIP-7702, whose
authorisations are signed, too). A block does not name senders: they are recovered from the signatures, over
Keccak-256 of what is signed, which the daemon computes.
"""

from __future__ import annotations

from collections.abc import Iterator

from node_adapter.client import Algorithm, Hash, InputKind, LowS, Scheme, SignatureEncoding
from node_adapter.errors import FormatError
from node_adapter.formats._rlp import Item, encode_list, read
from node_adapter.formats._signed import Record, Signed, Unverifiable

__all__ = ["records"]

_SCHEME = Scheme(
    Algorithm.ECDSA_SECP256K1,
    InputKind.MESSAGE,
    SignatureEncoding.RAW_RSV,
    low_s=LowS.REQUIRE,
    hash=Hash.KECCAK256,
)
# Before Homestead a high s was allowed, and only transactions without EIP-155 can be so old.
_OLD_SCHEME = Scheme(Algorithm.ECDSA_SECP256K1, InputKind.MESSAGE, SignatureEncoding.RAW_RSV, hash=Hash.KECCAK256)

# Fields of a transaction before y parity, r and s.
_SIGNED_FIELDS = {1: 8, 2: 9, 3: 11, 4: 10}
_AUTHORISATIONS = 9  # their field in type 4
_AUTHORISATION_MAGIC = b"\x05"
_NUMBER = 8  # the block number's field in the header


def records(data: bytes, *, chain_id: int | None = None) -> Iterator[Record]:
    """The blocks of a file, in order.

    With `chain_id`, what is signed for another chain is not verifiable. Raises FormatError at the byte that is
    wrong; the blocks before it have been given by then.
    """
    at = 0
    while at < len(data):
        block = read(data, at)
        yield _block(block, chain_id)
        at = block.stop


def _block(block: Item, chain_id: int | None) -> Record:
    header, transactions = block.children(least=3)[:2]
    number = header.children(least=_NUMBER + 1)[_NUMBER].integer(8)
    signed: list[Signed] = []
    unverifiable: list[Unverifiable] = []
    items = transactions.children()
    for place, item in enumerate(items):
        for found in _transaction(item, f"block {number} transaction {place}", chain_id):
            (signed if isinstance(found, Signed) else unverifiable).append(found)  # type: ignore[arg-type]
    return Record(f"block {number}", len(items), tuple(signed), tuple(unverifiable))


def _transaction(item: Item, where: str, chain_id: int | None) -> Iterator[Signed | Unverifiable]:
    if item.is_list:
        yield _legacy(item, where, chain_id)
        return
    kind = item.string()[:1]
    if not kind:
        raise FormatError(item.at, "an empty transaction")
    count = _SIGNED_FIELDS.get(kind[0])
    if count is None:
        yield Unverifiable(where, f"transaction type {kind[0]} at byte {item.start} is not known")
        return
    body = read(item.data, item.start + 1, item.stop)
    if body.stop != item.stop:
        raise FormatError(body.stop, f"{item.stop - body.stop} bytes behind a transaction")
    fields = body.children()
    if len(fields) != count + 3:
        raise FormatError(body.at, f"transaction of type {kind[0]} with {len(fields)} fields; it has {count + 3}")
    yield _signed(where, fields[0].integer(), kind + _list(fields[:count]), fields[count:], chain_id)
    if kind[0] == 4:
        for place, entry in enumerate(fields[_AUTHORISATIONS].children()):
            parts = entry.children()
            if len(parts) != 6:
                raise FormatError(entry.at, f"authorisation with {len(parts)} fields; it has 6")
            # An authorisation with chain id 0 holds on every chain.
            chain = parts[0].integer() or chain_id or 0
            message = _AUTHORISATION_MAGIC + _list(parts[:3])
            yield _signed(f"{where} authorisation {place}", chain, message, parts[3:], chain_id)


def _legacy(item: Item, where: str, chain_id: int | None) -> Signed | Unverifiable:
    fields = item.children()
    if len(fields) != 9:
        raise FormatError(item.at, f"legacy transaction with {len(fields)} fields; it has 9")
    v = fields[6].integer()
    if v in (27, 28):
        return Signed(where, _OLD_SCHEME, _list(fields[:6]), _rsv(fields[7], fields[8], v - 27), recover=True)
    if v < 35:
        return Unverifiable(where, f"v is {v} at byte {fields[6].at}; it is 27, 28, or 35 and more")
    chain = (v - 35) // 2
    if chain_id is not None and chain != chain_id:
        return _foreign(where, chain, chain_id)
    suffix = _integer(chain) + b"\x80\x80"
    message = encode_list(item.data[fields[0].at : fields[5].stop] + suffix)
    return Signed(where, _SCHEME, message, _rsv(fields[7], fields[8], (v - 35) % 2), recover=True)


def _signed(where: str, chain: int, message: bytes, signature: list[Item], told: int | None) -> Signed | Unverifiable:
    if told is not None and chain != told:
        return _foreign(where, chain, told)
    parity = signature[0].integer(32)
    if parity > 1:
        return Unverifiable(where, f"y parity is {parity} at byte {signature[0].at}; it is 0 or 1")
    return Signed(where, _SCHEME, message, _rsv(signature[1], signature[2], parity), recover=True)


def _foreign(where: str, chain: int, told: int) -> Unverifiable:
    return Unverifiable(where, f"signed for chain {chain}, not {told}")


def _rsv(r: Item, s: Item, parity: int) -> bytes:
    return r.integer().to_bytes(32, "big") + s.integer().to_bytes(32, "big") + bytes([parity])


def _list(fields: list[Item]) -> bytes:
    """The list of these neighbouring fields, taken as they stand."""
    return encode_list(fields[0].data[fields[0].at : fields[-1].stop])


def _integer(value: int) -> bytes:
    content = value.to_bytes((value.bit_length() + 7) // 8, "big")
    return content if len(content) == 1 and content[0] < 0x80 else bytes([0x80 + len(content)]) + content
