"""A chain's history in Parquet, and its verification in bulk.

    export(records, path)             blocks of any of `node_adapter.formats` to one Parquet file
    verify_dataset(paths, options)    every row group on this machine's devices, or over a Ray cluster

What a file holds is described in `node_adapter.ledger._schema` and in docs/scaling.md. Needs the extra `bulk`
(pyarrow), and `cluster` (Ray) for more than one machine.
"""

from node_adapter.ledger._calls import Call
from node_adapter.ledger._checkpoint import Checkpoint
from node_adapter.ledger._export import Exported, export
from node_adapter.ledger._outcome import Failure, Outcome
from node_adapter.ledger._report import totals, write_report
from node_adapter.ledger._schema import SCHEMA, SCHEMA_VERSION
from node_adapter.ledger._verify import Group, Options, Plan, plan_dataset, verify_dataset

__all__ = [
    "SCHEMA",
    "SCHEMA_VERSION",
    "Call",
    "Checkpoint",
    "Exported",
    "Failure",
    "Group",
    "Options",
    "Outcome",
    "Plan",
    "export",
    "plan_dataset",
    "totals",
    "verify_dataset",
    "write_report",
]
