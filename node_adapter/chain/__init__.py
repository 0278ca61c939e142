"""A simulated permissioned chain whose validators verify through the daemon."""

from node_adapter.chain._block import CONSENSUS_SCHEME, Block, Header, Phase, Proposal, Vote
from node_adapter.chain._faults import FAULTS, Fault
from node_adapter.chain._keys import SigningKey
from node_adapter.chain._pool import Pool, PoolEntry, cache_folder, make_pool
from node_adapter.chain._simulation import Report, Simulation
from node_adapter.chain._state import State
from node_adapter.chain._sync import catch_up
from node_adapter.chain._transaction import TRANSACTION_SCHEME, Transaction
from node_adapter.chain._validator import Committed, Validator

__all__ = [
    "CONSENSUS_SCHEME",
    "FAULTS",
    "TRANSACTION_SCHEME",
    "Block",
    "Committed",
    "Fault",
    "Header",
    "Phase",
    "Pool",
    "PoolEntry",
    "Proposal",
    "Report",
    "SigningKey",
    "Simulation",
    "State",
    "Transaction",
    "Validator",
    "Vote",
    "cache_folder",
    "catch_up",
    "make_pool",
]
