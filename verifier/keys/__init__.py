"""Keys that callers name: what is registered, the tables of their multiples on the devices, and who goes by them."""

from verifier.keys._batches import NamedBatch
from verifier.keys._memory import RESERVED_SLOTS, TableSize, slot_bytes
from verifier.keys._promotion import Promotion
from verifier.keys._scheduler import KeyScheduler, Submits
from verifier.keys._sets import (
    INDEX_BYTES,
    MAX_KEY_BYTES,
    Indices,
    KeySet,
    KeySetLimits,
    KeySets,
    key_codes,
    key_table,
    resolve,
)
from verifier.keys._tables import KeyTables, TableOptions, TableStats

__all__ = [
    "INDEX_BYTES",
    "MAX_KEY_BYTES",
    "RESERVED_SLOTS",
    "Indices",
    "KeyScheduler",
    "KeySet",
    "KeySetLimits",
    "KeySets",
    "KeyTables",
    "NamedBatch",
    "Promotion",
    "Submits",
    "TableOptions",
    "TableSize",
    "TableStats",
    "key_codes",
    "key_table",
    "resolve",
    "slot_bytes",
]
