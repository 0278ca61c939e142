"""A node's disk: blocks with their certificates, accounts, and what the node promised, in one SQLite file."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from pathlib import Path

from node_adapter.chain._block import GENESIS
from node_adapter.chain._messages import Committed, NewView, Prepared, decode, encode
from node_adapter.chain._state import State
from node_adapter.errors import ChainError

__all__ = ["Ledger"]

_TABLES = """
CREATE TABLE IF NOT EXISTS block (height INTEGER PRIMARY KEY, hash BLOB NOT NULL, committed BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS account (address BLOB PRIMARY KEY, balance BLOB NOT NULL, nonce INTEGER NOT NULL)
    WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS included (hash BLOB PRIMARY KEY, height INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS promise (name TEXT PRIMARY KEY, value BLOB) WITHOUT ROWID;
"""


class Ledger:
    """Everything that a node must find again after a crash.

    A block, the accounts that it changed and the end of the promises about its height are one transaction. What is
    promised (a view, a vote, a prepared certificate) is on the disk before the message that says so is sent.
    """

    def __init__(self, path: Path | None, chain: int, opening: Mapping[bytes, int]) -> None:
        """Opens or creates the file; None keeps everything in memory. `opening` are the balances at height 0."""
        self._database = sqlite3.connect(path or ":memory:", isolation_level=None)
        self._database.executescript("PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;" + _TABLES)
        self._chain = chain
        if not self._database.execute("SELECT 1 FROM account LIMIT 1").fetchone():
            self._write_accounts(State(chain, opening), opening)

    def close(self) -> None:
        """Closes the file."""
        self._database.close()

    @property
    def height(self) -> int:
        """The last block's height; 0: there is none."""
        return int(self._database.execute("SELECT coalesce(max(height), 0) FROM block").fetchone()[0])

    def hash(self, height: int) -> bytes:
        """The hash of the block at a height."""
        if height == 0:
            return GENESIS
        row = self._database.execute("SELECT hash FROM block WHERE height = ?", (height,)).fetchone()
        if row is None:
            raise ChainError(f"there is no block {height}")
        return bytes(row[0])

    def blocks(self, first: int, most: int) -> tuple[Committed, ...]:
        """Up to `most` blocks from a height on."""
        rows = self._database.execute(
            "SELECT committed FROM block WHERE height BETWEEN ? AND ? ORDER BY height", (first, first + most - 1)
        )
        return tuple(decode(row[0], Committed) for row in rows)

    def height_of(self, transaction: bytes) -> int | None:
        """The height of the block that holds a transaction with this hash."""
        row = self._database.execute("SELECT height FROM included WHERE hash = ?", (transaction,)).fetchone()
        return None if row is None else int(row[0])

    def state(self) -> State:
        """The accounts after the last block."""
        rows = self._database.execute("SELECT address, balance, nonce FROM account").fetchall()
        balances = {bytes(address): int.from_bytes(balance, "big") for address, balance, _ in rows}
        return State(self._chain, balances, {bytes(address): nonce for address, _, nonce in rows if nonce})

    def append(self, committed: Committed, state: State) -> None:
        """Writes the next block, which led to `state`. Raises ChainError for a block that does not follow."""
        block = committed.block
        if block.height != self.height + 1 or block.header.previous != self.hash(block.height - 1):
            raise ChainError(f"block {block.height} does not follow block {self.height}")
        changed = {account for tx in block.transactions for account in (tx.sender, tx.recipient)}
        self._database.execute("BEGIN")
        try:
            self._database.execute(
                "INSERT INTO block VALUES (?, ?, ?)", (block.height, block.hash, encode(committed))
            )
            self._database.executemany(
                "INSERT INTO included VALUES (?, ?)", [(tx.hash, block.height) for tx in block.transactions]
            )
            self._write_accounts(state, changed)
            self._database.execute("DELETE FROM promise WHERE name IN ('vote', 'prepared')")
            self._database.execute("COMMIT")
        except BaseException:
            self._database.execute("ROLLBACK")
            raise

    def _write_accounts(self, state: State, changed: Mapping[bytes, int] | set[bytes]) -> None:
        self._database.executemany(
            "INSERT OR REPLACE INTO account VALUES (?, ?, ?)",
            [
                (account, state.balances[account].to_bytes(16, "big"), state.nonces.get(account, 0))
                for account in changed
            ],
        )

    def promise_view(self, view: int, new_view: NewView | None) -> None:
        """The node is in a view (with the message that began it), or, without that, waits for its beginning."""
        self._promise("view", view.to_bytes(8, "big") + (encode(new_view) if new_view else b""))

    def promise_vote(self, view: int, height: int, digest: bytes) -> None:
        """The node sends a pre-prepare or a prepare for this digest, and for no other in this view at this height."""
        self._promise("vote", view.to_bytes(8, "big") + height.to_bytes(8, "big") + digest)

    def promise_prepared(self, prepared: Prepared) -> None:
        """The node sends a commit on the strength of this certificate."""
        self._promise("prepared", encode(prepared))

    def _promise(self, name: str, value: bytes) -> None:
        self._database.execute("INSERT OR REPLACE INTO promise VALUES (?, ?)", (name, value))

    def _promised(self, name: str) -> bytes | None:
        row = self._database.execute("SELECT value FROM promise WHERE name = ?", (name,)).fetchone()
        return None if row is None else bytes(row[0])

    def view(self) -> tuple[int, NewView | None]:
        """The view, and the message that began it."""
        kept = self._promised("view")
        if kept is None:
            return 0, None
        return int.from_bytes(kept[:8], "big"), decode(kept[8:], NewView) if len(kept) > 8 else None

    def vote(self) -> tuple[int, int, bytes] | None:
        """The last vote: view, height, digest."""
        kept = self._promised("vote")
        return kept and (int.from_bytes(kept[:8], "big"), int.from_bytes(kept[8:16], "big"), kept[16:])  # type: ignore[return-value]

    def prepared(self) -> Prepared | None:
        """The last prepared certificate for the next height."""
        kept = self._promised("prepared")
        return decode(kept, Prepared) if kept else None
