"""A permissioned chain of our own, whose nodes verify through the middleware: PBFT, simulated or in real time."""

from node_adapter.chain._block import Block, Header
from node_adapter.chain._client import Client, Request, requests_of
from node_adapter.chain._engines import Asked, Engine, Library, Middleware
from node_adapter.chain._faults import FAULTS, Fault
from node_adapter.chain._keys import P256Key, SigningKey
from node_adapter.chain._ledger import Ledger
from node_adapter.chain._libraries import by_library
from node_adapter.chain._membership import MEMBER_SCHEME, Identity, Membership, issue_members
from node_adapter.chain._network import Conditions, Network
from node_adapter.chain._node import Node, NodeSettings
from node_adapter.chain._pool import Pool, PoolEntry, cache_folder, make_pool
from node_adapter.chain._questions import Point, Question
from node_adapter.chain._realtime import RealTime
from node_adapter.chain._report import Report, report_of
from node_adapter.chain._simulation import Simulation
from node_adapter.chain._state import State
from node_adapter.chain._transaction import TRANSACTION_SCHEME, TRANSACTION_SCHEMES, Transaction
from node_adapter.chain._verdicts import RememberedVerdicts, by_middleware

__all__ = [
    "FAULTS",
    "MEMBER_SCHEME",
    "TRANSACTION_SCHEME",
    "TRANSACTION_SCHEMES",
    "Asked",
    "Block",
    "Client",
    "Conditions",
    "Engine",
    "Fault",
    "Header",
    "Identity",
    "Ledger",
    "Library",
    "Membership",
    "Middleware",
    "Network",
    "Node",
    "NodeSettings",
    "P256Key",
    "Point",
    "Pool",
    "PoolEntry",
    "Question",
    "RealTime",
    "RememberedVerdicts",
    "Report",
    "Request",
    "SigningKey",
    "Simulation",
    "State",
    "Transaction",
    "by_library",
    "by_middleware",
    "cache_folder",
    "issue_members",
    "make_pool",
    "report_of",
    "requests_of",
]
