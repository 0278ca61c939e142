"""A node of the chain: takes transactions, proposes, verifies, executes, and keeps the chain."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import islice

from node_adapter.chain._block import Block, Header, transactions_root
from node_adapter.chain._host import Handle, Host
from node_adapter.chain._ledger import Ledger
from node_adapter.chain._membership import Identity
from node_adapter.chain._mempool import Mempool
from node_adapter.chain._messages import (
    BlockRequest,
    Blocks,
    Commit,
    Committed,
    Message,
    NewView,
    Prepare,
    PrePrepare,
    Rejected,
    Reply,
    Status,
    Submit,
    ViewChange,
)
from node_adapter.chain._meter import Meter
from node_adapter.chain._questions import Codes, Point, Question, ask
from node_adapter.chain._receipts import Receipts, Received, Waits
from node_adapter.chain._replica import Replica
from node_adapter.chain._state import State
from node_adapter.chain._sync import CatchUp
from node_adapter.chain._transaction import TRANSACTION_SCHEMES, Transaction
from node_adapter.client import Algorithm
from node_adapter.errors import ChainError
from verifier.model import Code

__all__ = ["Node", "NodeSettings"]

_Bad = tuple[Transaction, Code]  # and what is wrong with it


@dataclass(frozen=True, slots=True)
class NodeSettings:
    """How a node works. `verify_early` has transactions verified on receipt, while earlier blocks are agreed on;
    without it they wait in the pool and are verified when they are proposed."""

    algorithm: Algorithm = Algorithm.SM2
    block_transactions: int = 100
    block_interval_s: float = 0.05  # a block that is not full waits this long
    view_timeout_s: float = 2.0
    status_interval_s: float = 0.5
    retry_s: float = 0.25  # before an undecided item is asked about again
    sync_blocks: int = 250
    sync_timeout_s: float = 5.0
    verify_early: bool = True
    receipts_under_way: int = 2  # batches of received transactions at the verifier
    receipt_delay_s: float = 0.0  # that what was received waits for more: see Waits


class Node:
    """One member's node. `problem` says why it has stopped; None: it runs."""

    def __init__(
        self,
        identity: Identity,
        host: Host,
        ledger: Ledger,
        settings: NodeSettings,
        clients: Sequence[int] = (),
    ) -> None:
        self.number = identity.number
        self.ledger = ledger
        self.state = ledger.state()
        self.tip = ledger.hash(ledger.height)
        self.mempool = Mempool()
        self.problem: str | None = None
        self.rejected: Counter[str] = Counter()
        self._chain = identity.membership.chain
        self._host, self._settings, self._clients = host, settings, clients
        self._scheme = TRANSACTION_SCHEMES[settings.algorithm]
        self.meter = Meter()  # of what questions take that are for the host's verifier
        # Transactions whose signatures were found valid and that no block holds, the latest last.
        self._valid: dict[bytes, None] = {}
        self.receipts = Receipts(
            host,
            self._scheme,
            Waits(
                settings.receipt_delay_s, settings.block_transactions, settings.receipts_under_way, settings.retry_s
            ),
            self.meter,
            hungry=lambda: len(self.mempool) < settings.block_transactions,
            use=self._received,
        )
        self._building = False
        self._build_timer: Handle | None = None
        self.replica = Replica(identity, host, ledger, self, settings.view_timeout_s)
        self.catch_up = CatchUp(
            self,
            identity.membership,
            host,
            ledger,
            self._scheme,
            most=settings.sync_blocks,
            timeout_s=settings.sync_timeout_s,
            retry_s=settings.retry_s,
        )

    def start(self) -> None:
        """Begins to tell the others where this node is."""
        self._beat()

    def stop(self, problem: str) -> None:
        """Does nothing any more."""
        self.problem = problem
        self.receipts.stop()

    def _beat(self) -> None:
        if self.problem is None:
            self.replica.broadcast(self.replica.status())
            self._host.call_later(self._settings.status_interval_s, self._beat)

    def receive(self, message: Message, sender: int) -> None:
        """Takes a message that came over the sender's own, authenticated connection."""
        if self.problem is not None:
            return
        match message:
            case Submit():
                self._submitted(message.transactions, sender)
            case PrePrepare():
                self.replica.receive_pre_prepare(message)
            case Prepare() | Commit():
                self.replica.receive_vote(message)
            case ViewChange():
                self.replica.receive_view_change(message)
            case NewView():
                self.replica.receive_new_view(message)
            case Status():
                if message.height > self.ledger.height:
                    self.catch_up.behind(sender)
                self.replica.receive_status(message, sender)
            case BlockRequest():
                self.catch_up.answer(message, sender)
            case Blocks():
                self.catch_up.receive(message, sender)
            case _:
                pass  # what only clients are sent
        self._build()

    # -- on receipt ----------------------------------------------------------------------------------------------

    def _submitted(self, encoded: Iterable[bytes], client: int) -> None:
        fresh: dict[bytes, Received] = {}
        for data in encoded:
            try:
                transaction = Transaction.decoded(data)
            except ChainError:
                self._reject(hashlib.sha256(data).digest(), "ENCODING", client)
                continue
            name = transaction.hash
            if transaction in self.mempool or name in self.receipts or name in fresh:
                continue
            if height := self.ledger.height_of(name):
                self._host.send(client, Reply(height, (name,)))
            elif transaction.chain != self._chain:
                self._reject(name, "CHAIN", client)
            elif self._settings.verify_early:
                fresh[name] = transaction, client
            else:
                self._admit(transaction, client)
        if fresh:
            self.receipts.add(fresh)

    def _received(self, received: Iterable[Received], codes: Codes) -> None:
        """Takes the verdicts on a batch of received transactions."""
        admitted = []
        for (transaction, client), code in zip(received, codes.tolist(), strict=True):
            if code != Code.VALID:
                self._reject(transaction.hash, Code(code).name, client)
            elif self._admit(transaction, client):
                admitted.append(transaction.hash)
        self._found_valid(admitted)
        self._build()

    def _admit(self, transaction: Transaction, client: int) -> bool:
        """Into the pool, unless a block has taken its nonce meanwhile."""
        if refusal := self.state.refusal(transaction):
            self._refuse(transaction, refusal, client)
        elif not self.mempool.add(transaction):
            self._reject(transaction.hash, "FULL", client)
        else:
            self.replica.watch()
            return True
        return False

    def _refuse(self, transaction: Transaction, reason: str, client: int) -> None:
        """Says no, or, where the very transaction is on the chain, where it is."""
        if height := self.ledger.height_of(transaction.hash):
            self._host.send(client, Reply(height, (transaction.hash,)))
        else:
            self._reject(transaction.hash, reason, client)

    def _reject(self, name: bytes, reason: str, client: int) -> None:
        self.rejected[reason] += 1
        self._host.send(client, Rejected(name, reason))

    # -- on proposal ---------------------------------------------------------------------------------------------

    def has_work(self) -> bool:
        """Whether a correct primary would propose a block now."""
        return self.mempool.ready(self.state)

    def view_entered(self) -> None:
        """The primary may be this node."""
        self._build()

    def _build(self, *, due: bool = False) -> None:
        """Proposes a block if it is this node's turn, and the block is full or has waited long enough."""
        if self.problem or self._building or not len(self.mempool) or not self.replica.may_propose:
            return
        if not due and len(self.mempool) < self._settings.block_transactions:
            if self._build_timer is None:
                self._build_timer = self._host.call_later(self._settings.block_interval_s, self._build_due)
            return
        chosen, after = self.mempool.choose(self.state, self._settings.block_transactions)
        if not chosen:
            return
        self._building = True
        self._verify(chosen, lambda bad: self._propose(chosen, after, bad))

    def _build_due(self) -> None:
        self._build_timer = None
        self._build(due=True)

    def _propose(self, chosen: Sequence[Transaction], after: State, bad: Sequence[_Bad]) -> None:
        self._building = False
        for transaction, code in bad:
            self.mempool.discard(transaction)
            for client in self._clients:
                self._reject(transaction.hash, code.name, client)
        if bad or not self.replica.may_propose or any(transaction not in self.mempool for transaction in chosen):
            self._build(due=True)
            return
        header = Header(
            self._chain, self.ledger.height + 1, self.tip, self.number, transactions_root(chosen), after.root()
        )
        self.replica.propose(Block(header, tuple(chosen)), after)

    def check(self, block: Block, done: Callable[[State | None], None]) -> None:
        """Verifies and executes a proposal. None: no correct primary proposes it."""
        header = block.header
        follows = (header.height, header.previous) == (self.ledger.height + 1, self.tip)
        if not follows or not 0 < len(block.transactions) <= self._settings.block_transactions:
            done(None)
            return
        self._verify(block.transactions, lambda bad: done(None if bad else self._executed(block)))

    def _executed(self, block: Block) -> State | None:
        state = self.state.copy()
        if state.apply_all(block.transactions) or state.root() != block.header.state:
            return None
        return state

    def _verify(self, transactions: Sequence[Transaction], use: Callable[[Sequence[_Bad]], None]) -> None:
        """Has those transactions verified that this node has not verified before, and passes the bad ones on."""
        unknown = [transaction for transaction in transactions if transaction.hash not in self._valid]

        def judge(codes: Codes) -> None:
            found = [(tx, Code(code)) for tx, code in zip(unknown, codes.tolist(), strict=True)]
            self._found_valid(tx.hash for tx, code in found if code is Code.VALID)
            use([(tx, code) for tx, code in found if code is not Code.VALID])

        if unknown:
            with self.meter:
                question = Question.transactions(Point.PROPOSAL, self._scheme, unknown)
            ask(self._host, question, self._settings.retry_s, judge)
        else:
            use([])

    def _found_valid(self, names: Iterable[bytes]) -> None:
        """Remembers them, and forgets the earliest: proposals that no block comes of must not fill the memory. What
        is forgotten is verified again."""
        self._valid.update(dict.fromkeys(names))
        for name in list(islice(self._valid, max(len(self._valid) - 2 * self.mempool.limit, 0))):
            del self._valid[name]

    # -- on the chain --------------------------------------------------------------------------------------------

    def commit(self, committed: Committed, state: State) -> None:
        """Puts a block on the chain, on the disk first."""
        block = committed.block
        self.ledger.append(committed, state)
        self.state, self.tip = state, block.hash
        self.mempool.settle(block.transactions, state)
        hashes = tuple(transaction.hash for transaction in block.transactions)
        for name in hashes:
            self._valid.pop(name, None)
        for client in self._clients:
            self._host.send(client, Reply(block.height, hashes))
        self.replica.appended(block.height)
        self._build()
        self.receipts.go()  # the pool may have become too small for a block
