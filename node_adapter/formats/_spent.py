"""Outputs that a Bitcoin block spends, which stand in earlier blocks."""

from __future__ import annotations

import json
from decimal import Decimal, InvalidOperation
from typing import Any

from node_adapter.errors import FormatError
from node_adapter.formats._bitcoin import Output

__all__ = ["read_spent"]

_SATOSHI = 100_000_000


def read_spent(text: str) -> dict[tuple[bytes, int], Output]:
    """Outputs from text: what `bitcoin-cli getblock HASH 3` prints, or lines of "txid:index amount script".

    The script of a line is in hexadecimal, its amount in satoshi. Raises FormatError at the start of a line that is
    not so, and at the byte where JSON stops being JSON.
    """
    if text.lstrip()[:1] == "{":
        try:
            return _from_json(json.loads(text, parse_float=Decimal))
        except json.JSONDecodeError as error:
            raise FormatError(len(text[: error.pos].encode()), f"not JSON: {error.msg}") from None
        except (AttributeError, ArithmeticError, InvalidOperation, KeyError, TypeError, ValueError) as error:
            raise FormatError(0, f"no block with its prevouts: {type(error).__name__} {error}") from None
    coins = {}
    offset = 0
    for line in text.splitlines(keepends=True):
        if line.strip():
            try:
                outpoint, amount, script = line.split()
                name, index = outpoint.split(":")
                coins[_outpoint(name, int(index))] = _output(int(amount), script)
            except ValueError:
                raise FormatError(offset, 'not "txid:index amount script"') from None
        offset += len(line.encode())
    return coins


def _from_json(block: Any) -> dict[tuple[bytes, int], Output]:
    coins = {}
    for transaction in block["tx"]:
        for spending in transaction["vin"]:
            if "coinbase" in spending:
                continue
            spent = spending["prevout"]
            amount = Decimal(spent["value"]) * _SATOSHI
            if amount != int(amount):
                raise ValueError(f"{spent['value']} is no amount of bitcoin")
            coins[_outpoint(spending["txid"], int(spending["vout"]))] = _output(
                int(amount), spent["scriptPubKey"]["hex"]
            )
    return coins


def _outpoint(name: str, index: int) -> tuple[bytes, int]:
    key = bytes.fromhex(name)[::-1]
    if len(key) != 32 or not 0 <= index < 1 << 32:
        raise ValueError(f"{name}:{index} is no output")
    return key, index


def _output(amount: int, script: str) -> Output:
    if not 0 <= amount < 1 << 63:
        raise ValueError(f"{amount} is no amount")
    return Output(amount, bytes.fromhex(script))
