"""What the chain remembers: balances and nonces."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

from node_adapter.chain._transaction import Transaction

__all__ = ["State"]


class State:
    """Accounts with balances and nonces. The rules: the next nonce of the sender, and no debt."""

    def __init__(self, balances: Mapping[bytes, int], nonces: Mapping[bytes, int] | None = None) -> None:
        self.balances = dict(balances)
        self.nonces = dict(nonces or {})

    def copy(self) -> State:
        """A state of its own with the same content."""
        return State(self.balances, self.nonces)

    def apply(self, transaction: Transaction) -> str | None:
        """Applies a transaction whose signature is valid. Returns why not, and then changes nothing."""
        sender = transaction.sender
        if transaction.nonce != self.nonces.get(sender, 0):
            return "NONCE"
        if transaction.amount > self.balances.get(sender, 0):
            return "BALANCE"
        self.nonces[sender] = transaction.nonce + 1
        self.balances[sender] = self.balances.get(sender, 0) - transaction.amount
        self.balances[transaction.recipient] = self.balances.get(transaction.recipient, 0) + transaction.amount
        return None

    def root(self) -> bytes:
        """SHA-256 over all accounts in the order of their addresses."""
        digest = hashlib.sha256()
        for account in sorted(self.balances):
            balance, nonce = self.balances[account], self.nonces.get(account, 0)
            digest.update(account + balance.to_bytes(16, "big") + nonce.to_bytes(8, "big"))
        return digest.digest()
