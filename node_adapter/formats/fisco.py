"""FISCO BCOS 3 and 2: transactions and blocks as their JSON-RPC gives them (bcos-rpc, toJsonResp).

What is signed is the transaction's hash, over its fields as the node serialises them (bcos-tars-protocol,
TarsHashable.h): SM3 and SM2 on chains with national algorithms, where the hash is the message and the signature is
r || s || key; Keccak-256 and recovery on others. The hash is computed again here, so that it is the fields which are
verified, and the signer must be the `from` that is given. Version 2 hashes RLP instead: _fisco2.py.
"""

from __future__ import annotations

import contextlib
import enum
import hashlib
import json
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

from Cryptodome.Hash import keccak
from gmssl import func, sm3

from node_adapter.client import Algorithm, InputKind, KeyEncoding, Scheme, SignatureEncoding
from node_adapter.errors import FormatError
from node_adapter.formats._fisco2 import is_second, signed_hashes
from node_adapter.formats._signed import Record, Signed, Unverifiable

__all__ = ["Crypto", "records", "transaction_hash"]

_SM2 = Scheme(Algorithm.SM2, InputKind.HASH_AS_MESSAGE, SignatureEncoding.RAW_RS_KEY, KeyEncoding.IN_SIGNATURE)
_SECP256K1 = Scheme(Algorithm.ECDSA_SECP256K1, InputKind.DIGEST, SignatureEncoding.RAW_RSV)


class Crypto(enum.StrEnum):
    """A chain's algorithms; they are a setting of the chain and stand in no transaction."""

    sm2 = "sm2"
    secp256k1 = "secp256k1"


def records(data: bytes, *, crypto: Crypto = Crypto.sm2, chain_id: str | None = None) -> Iterator[Record]:
    """The blocks of a file: a block, a transaction, a list of either, or a JSON-RPC answer (or several) with them.

    With `chain_id`, transactions of another chain are not verifiable. Raises FormatError at the byte where the file
    stops being JSON, or at 0 where it holds something else.
    """
    try:
        text = data.decode()
        found = json.loads(text)
    except UnicodeDecodeError as error:
        raise FormatError(error.start, f"not UTF-8: {error.reason}") from None
    except json.JSONDecodeError as error:
        raise FormatError(len(text[: error.pos].encode()), f"not JSON: {error.msg}") from None
    found = _result(found)
    entries = [_result(entry) for entry in found] if isinstance(found, list) else [found]
    loose = []
    for place, entry in enumerate(entries):
        if not isinstance(entry, dict):
            raise FormatError(0, f"entry {place} is neither a block nor a transaction")
        if isinstance(entry.get("transactions"), list):
            yield _record(f"block {entry.get('number', place)}", entry["transactions"], crypto, chain_id)
        else:
            loose.append(entry)
    if loose:
        yield _record("transactions", loose, crypto, chain_id)


def _result(found: Any) -> Any:
    """What a JSON-RPC answer holds, or the same where it is none."""
    return found["result"] if isinstance(found, dict) and "result" in found else found


def transaction_hash(transaction: Mapping[str, Any], nonce: bytes, crypto: Crypto) -> bytes:
    """The hash of a transaction's fields. Raises KeyError, TypeError or ValueError where one is missing or wrong."""
    version = int(transaction["version"])
    if version not in (0, 1, 2):
        raise ValueError(f"transaction version {version} is not known")
    parts = [
        version.to_bytes(4, "big"),
        transaction["chainID"].encode(),
        transaction["groupID"].encode(),
        int(transaction["blockLimit"]).to_bytes(8, "big"),
        nonce,
        transaction["to"].encode(),
        _unhex(transaction["input"]),
        transaction.get("abi", "").encode(),
    ]
    if version >= 1:
        parts += [
            transaction.get("value", "").encode(),
            transaction.get("gasPrice", "").encode(),
            int(transaction.get("gasLimit", 0)).to_bytes(8, "big"),
            transaction.get("maxFeePerGas", "").encode(),
            transaction.get("maxPriorityFeePerGas", "").encode(),
        ]
    if version >= 2:
        parts.append(_unhex(transaction.get("extension", "")))
    return _hash(b"".join(parts), crypto)


def _record(name: str, transactions: list[Any], crypto: Crypto, chain_id: str | None) -> Record:
    found = [
        _transaction(tx, f"{name} transaction {place}", crypto, chain_id) for place, tx in enumerate(transactions)
    ]
    return Record.of(name, len(transactions), found)


def _transaction(transaction: Any, where: str, crypto: Crypto, chain_id: str | None) -> Signed | Unverifiable:
    if not isinstance(transaction, dict):
        return Unverifiable(where, "only its hash is given: ask the node for whole transactions")
    if transaction.get("type") == 1:
        return Unverifiable(where, "an Ethereum transaction in the chain's own (type 1): what it signs is not given")
    read = _second if is_second(transaction) else _third
    try:
        told, sender = _unhex(transaction["hash"]), _unhex(transaction["from"])
        chain, signature, hashes = read(transaction, crypto)
        if chain_id is not None and chain != chain_id:
            return Unverifiable(where, f"signed for chain {chain!r}, not for {chain_id!r}")
        if told not in hashes:
            other = Crypto.sm2 if crypto is Crypto.secp256k1 else Crypto.secp256k1
            if told in read(transaction, other)[2]:
                return Unverifiable(where, f"its hash is that of a chain with {other}, not {crypto}")
            return Unverifiable(where, "its hash is not that of its fields")
    except KeyError as error:
        return Unverifiable(where, f"{error.args[0]} is missing")
    except (AttributeError, OverflowError, TypeError, ValueError) as error:
        return Unverifiable(where, f"a field is not what it must be: {error}")
    if crypto is Crypto.secp256k1:
        return Signed(where, _SECP256K1, hashes[told], signature, recover=True, signer=sender)
    if len(signature) == 128 and _hash(signature[64:], crypto)[-20:] != sender:
        return Unverifiable(where, "it is signed by another than the sender")
    return Signed(where, _SM2, hashes[told], signature)


def _third(transaction: Mapping[str, Any], crypto: Crypto) -> tuple[str, bytes, dict[bytes, bytes]]:
    """Chain, signature, and what is signed by the name that the transaction then has."""
    # Nodes of different versions write the nonce's bytes as they are, or in hexadecimal.
    hashes = [transaction_hash(transaction, nonce, crypto) for nonce in _nonces(transaction["nonce"])]
    return transaction["chainID"], _unhex(transaction["signature"]), {hashed: hashed for hashed in hashes}


def _second(transaction: Mapping[str, Any], crypto: Crypto) -> tuple[str, bytes, dict[bytes, bytes]]:
    """The same of a transaction of version 2."""
    signature = _unhex(transaction["signature"]["signature"])
    chain = transaction["chainId"]
    told = str(int(chain, 0)) if isinstance(chain, str) else str(chain)
    return told, signature, signed_hashes(transaction, signature, partial(_hash, crypto=crypto))


def _nonces(nonce: str) -> list[bytes]:
    forms = [nonce.encode()]
    with contextlib.suppress(ValueError):
        forms.append(bytes.fromhex(nonce))
    return forms


def _unhex(text: str) -> bytes:
    return bytes.fromhex(text.removeprefix("0x"))


def _hash(data: bytes, crypto: Crypto) -> bytes:
    if crypto is Crypto.secp256k1:
        return keccak.new(digest_bits=256, data=data).digest()
    if "sm3" in hashlib.algorithms_available:
        return hashlib.new("sm3", data).digest()
    return bytes.fromhex(sm3.sm3_hash(func.bytes_to_list(data)))
