"""What the chain remembers: balances and nonces."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping

from node_adapter.chain._transaction import Transaction

__all__ = ["State"]


class State:
    """Accounts with balances and nonces. The rules: this chain, the next nonce of the sender, and no debt."""

    def __init__(self, chain: int, balances: Mapping[bytes, int], nonces: Mapping[bytes, int] | None = None) -> None:
        self.chain = chain
        self.balances = dict(balances)
        self.nonces = dict(nonces or {})

    def copy(self) -> State:
        """A state of its own with the same content."""
        return State(self.chain, self.balances, self.nonces)

    def refusal(self, transaction: Transaction) -> str | None:
        """Why a transaction can never be applied: another chain's, more than the balance, or a nonce that is used."""
        if transaction.chain != self.chain:
            return "CHAIN"
        if transaction.amount > self.balances.get(transaction.sender, 0):
            return "BALANCE"
        if transaction.nonce < self.nonces.get(transaction.sender, 0):
            return "NONCE"
        return None

    def hindrance(self, transaction: Transaction) -> str | None:
        """Why a transaction cannot be applied now: what `refusal` says, or a nonce whose turn is still to come."""
        if refusal := self.refusal(transaction):
            return refusal
        return None if transaction.nonce == self.nonces.get(transaction.sender, 0) else "NONCE"

    def apply(self, transaction: Transaction) -> str | None:
        """Applies a transaction whose signature is valid. Returns why not, and then changes nothing."""
        if hindrance := self.hindrance(transaction):
            return hindrance
        sender = transaction.sender
        self.nonces[sender] = transaction.nonce + 1
        self.balances[sender] -= transaction.amount
        self.balances[transaction.recipient] = self.balances.get(transaction.recipient, 0) + transaction.amount
        return None

    def apply_all(self, transactions: Iterable[Transaction]) -> str | None:
        """Applies a block's transactions in order. Returns why the first that cannot be applied cannot."""
        for transaction in transactions:
            if refusal := self.apply(transaction):
                return refusal
        return None

    def root(self) -> bytes:
        """SHA-256 over all accounts in the order of their addresses."""
        digest = hashlib.sha256()
        for account in sorted(self.balances):
            balance, nonce = self.balances[account], self.nonces.get(account, 0)
            digest.update(account + balance.to_bytes(16, "big") + nonce.to_bytes(8, "big"))
        return digest.digest()
