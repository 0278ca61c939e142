"""The columns of a ledger file.

One row is one signature of a transaction together with one key that may have made it:

| column | type | what |
| --- | --- | --- |
| block | string | the block's name |
| transaction | string | where the signature stands: block, transaction, which signature of it |
| call | int16 | index into the file's list of calls; null where the row cannot be verified |
| input | binary | what is signed: the message, or its digest, as the call says |
| signature, key | binary | in the call's encodings; key is null where it is recovered or in the signature |
| signer | binary | the address (20 bytes) that a recovered key must have; null takes any |
| check | string | of signatures with several possible keys: the check that they belong to; else null |
| check_signature, check_key | int32 | which signature of the check, which key; the keys' order is the rule's |
| why | string | why the row cannot be verified; null where it can |

Where all of a file's inputs, signatures or keys have one length that column is `fixed_size_binary` instead, which
halves what reading costs.

The rows of a check stand in one row group. The file's metadata holds `verifier.ledger` (the version of this table),
`verifier.calls`, the list of calls in JSON, and, where the source broke off, `verifier.broken`: where and why. Pages
carry checksums: a damaged page is an error, not a verdict.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from node_adapter.errors import LedgerError
from node_adapter.ledger._calls import Call

__all__ = [
    "SCHEMA",
    "SCHEMA_VERSION",
    "WIDE_COLUMNS",
    "WRITE_OPTIONS",
    "broken_off",
    "file_schema",
    "read_calls",
    "with_calls",
]

SCHEMA_VERSION = 1

SCHEMA = pa.schema(
    [
        ("block", pa.string()),
        ("transaction", pa.string()),
        ("call", pa.int16()),
        ("input", pa.binary()),
        ("signature", pa.binary()),
        ("key", pa.binary()),
        ("signer", pa.binary()),
        ("check", pa.string()),
        ("check_signature", pa.int32()),
        ("check_key", pa.int32()),
        ("why", pa.string()),
    ]
)

WIDE_COLUMNS = ("input", "signature", "key")
"""Nearly all of a file's bytes. They look random: neither a dictionary nor compression makes them smaller."""

WRITE_OPTIONS: dict[str, Any] = {
    "compression": {name: "none" if name in WIDE_COLUMNS else "zstd" for name in SCHEMA.names},
    "use_dictionary": [name for name in SCHEMA.names if name not in (*WIDE_COLUMNS, "transaction")],
    "write_page_checksum": True,
}
"""How pyarrow's ParquetWriter writes these columns. docs/scaling.md has what was measured."""


def file_schema(widths: Mapping[str, int | None]) -> Any:
    """The schema of a file: `widths` are of those wide columns whose values all have one."""
    schema = SCHEMA
    for name in WIDE_COLUMNS:
        if width := widths.get(name):
            schema = schema.set(schema.get_field_index(name), pa.field(name, pa.binary(width)))
    return schema


_VERSION_KEY, _CALLS_KEY, _BROKEN_KEY = b"verifier.ledger", b"verifier.calls", b"verifier.broken"


def with_calls(calls: Sequence[Call], broken: str = "") -> dict[str, str]:
    """The file's metadata. `broken`: where and why its source broke off."""
    found = {
        _VERSION_KEY.decode(): str(SCHEMA_VERSION),
        _CALLS_KEY.decode(): json.dumps([call.as_json() for call in calls]),
    }
    return found | ({_BROKEN_KEY.decode(): broken} if broken else {})


def broken_off(metadata: dict[bytes, bytes]) -> str:
    """Where and why a file's source broke off; "" where it did not."""
    return metadata.get(_BROKEN_KEY, b"").decode(errors="replace")


def read_calls(schema: Any, metadata: dict[bytes, bytes]) -> list[Call]:
    """The calls of a file whose columns are those of `SCHEMA`. Raises LedgerError naming column and type."""
    version = metadata.get(_VERSION_KEY)
    if version is None:
        raise LedgerError(
            "metadata verifier.ledger", "missing: this is no ledger file; verifier ledger export makes one"
        )
    if version != str(SCHEMA_VERSION).encode():
        raise LedgerError(
            "metadata verifier.ledger", f"version {version.decode()}; this program reads {SCHEMA_VERSION}"
        )
    for field in SCHEMA:
        place = schema.get_field_index(field.name)
        if place < 0:
            raise LedgerError(f"column {field.name}", "missing")
        if not _is_read(field, schema.field(place).type):
            raise LedgerError(f"column {field.name}", f"type {schema.field(place).type}; it is {field.type}")
    try:
        found = json.loads(metadata.get(_CALLS_KEY, b"null"))
    except ValueError as error:
        raise LedgerError("metadata verifier.calls", f"not JSON: {error}") from None
    if not isinstance(found, list):
        raise LedgerError("metadata verifier.calls", "missing or not a list")
    return [Call.from_json(call, f"metadata verifier.calls[{place}]") for place, call in enumerate(found)]


def _is_read(field: Any, given: Any) -> bool:
    return bool(given == field.type or (field.name in WIDE_COLUMNS and pa.types.is_fixed_size_binary(given)))
