"""FISCO BCOS 2: what the transactions of its JSON-RPC sign, and their names (libethcore, Transaction.cpp).

The fields are RLP, as in Ethereum, with a block limit, the chain, the group and extra data. What is signed is the
hash of these fields; what names a transaction is the hash of the fields and the signature behind them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from node_adapter.formats._rlp import encode_integer, encode_list, encode_string

__all__ = ["is_second", "signed_hashes"]

_NUMBERS = ("nonce", "gasPrice", "gas", "blockLimit")
_V_BASE = 27  # added to the recovery id where the signature is written
_SM2_SIGNATURE_BYTES, _SECP256K1_SIGNATURE_BYTES = 128, 65


def is_second(transaction: Mapping[str, Any]) -> bool:
    """Whether a transaction is one of version 2: those of version 3 write these words with a capital D."""
    return "chainId" in transaction and "groupId" in transaction and "chainID" not in transaction


def signed_hashes(
    transaction: Mapping[str, Any], signature: bytes, hashed: Callable[[bytes], bytes]
) -> dict[bytes, bytes]:
    """What is signed, by the name that the transaction then has.

    Raises KeyError, TypeError or ValueError where a field is missing or wrong.
    """
    before = b"".join(encode_integer(_number(transaction[name])) for name in _NUMBERS)
    behind = (
        encode_integer(_number(transaction["value"]))
        + encode_string(_bytes(transaction["input"]))
        + encode_integer(_number(transaction["chainId"]))
        + encode_integer(_number(transaction["groupId"]))
        + encode_string(_bytes(transaction["extraData"]))
    )
    receiver = _bytes(transaction["to"] or "")
    # Nodes write the address of nothing where a contract is made, and no address is signed.
    receivers = {receiver, b""} if not any(receiver) else {receiver}
    found = {}
    for to in receivers:
        fields = before + encode_string(to) + behind
        found[hashed(encode_list(fields + _written(signature)))] = hashed(encode_list(fields))
    return found


def _written(signature: bytes) -> bytes:
    """A signature as it stands behind the fields: v, r and s, where v is SM2's public key."""
    numbers = b"".join(encode_integer(int.from_bytes(half, "big")) for half in (signature[:32], signature[32:64]))
    if len(signature) == _SM2_SIGNATURE_BYTES:
        return encode_string(signature[64:]) + numbers
    if len(signature) == _SECP256K1_SIGNATURE_BYTES:
        return encode_integer(signature[64] + _V_BASE) + numbers
    raise ValueError(f"a signature of {len(signature)} bytes; it has 65, or 128 with SM2")


def _number(value: int | str) -> int:
    number = int(value, 0) if isinstance(value, str) else value
    if number < 0:
        raise ValueError(f"{value} is below zero")
    return number


def _bytes(text: str) -> bytes:
    return bytes.fromhex(text.removeprefix("0x"))
