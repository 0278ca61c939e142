"""Transactions that no block holds yet."""

from __future__ import annotations

from collections.abc import Iterable

from node_adapter.chain._state import State
from node_adapter.chain._transaction import Transaction

__all__ = ["Mempool"]


class Mempool:
    """Transactions in the order of their arrival, at most `limit` of them."""

    def __init__(self, limit: int = 100_000) -> None:
        self.limit = limit
        self._waiting: dict[bytes, Transaction] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def __contains__(self, transaction: Transaction) -> bool:
        return transaction.hash in self._waiting

    def add(self, transaction: Transaction) -> bool:
        """Takes a transaction; False: the pool is full."""
        if len(self._waiting) >= self.limit:
            return False
        self._waiting[transaction.hash] = transaction
        return True

    def discard(self, transaction: Transaction) -> None:
        """Drops a transaction that turned out to be bad."""
        self._waiting.pop(transaction.hash, None)

    def ready(self, state: State) -> bool:
        """Whether one of them can be applied now. Those that only wait for a missing nonce do not count."""
        return any(state.hindrance(transaction) is None for transaction in self._waiting.values())

    def choose(self, state: State, most: int) -> tuple[list[Transaction], State]:
        """Up to `most` transactions that can be applied one after the other, and the state after them."""
        after = state.copy()
        chosen: list[Transaction] = []
        for transaction in self._waiting.values():
            if len(chosen) == most:
                break
            if after.apply(transaction) is None:
                chosen.append(transaction)
        return chosen, after

    def settle(self, included: Iterable[Transaction], state: State) -> None:
        """Drops what a block holds, and what its senders can never send any more."""
        senders = set()
        for transaction in included:
            self._waiting.pop(transaction.hash, None)
            senders.add(transaction.sender)
        self._waiting = {
            name: tx for name, tx in self._waiting.items() if tx.sender not in senders or not state.refusal(tx)
        }
