"""Blocks of a chain's own files to Parquet, in memory that does not grow with the chain."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from node_adapter.errors import FormatError
from node_adapter.formats import Record, Signed, Unverifiable
from node_adapter.ledger._calls import Call
from node_adapter.ledger._files import replacing
from node_adapter.ledger._schema import SCHEMA, WIDE_COLUMNS, WRITE_OPTIONS, file_schema, with_calls

__all__ = ["Exported", "export"]

GROUP_ROWS = 65_536
GROUP_BYTES = 32 << 20


@dataclass(frozen=True, slots=True)
class Exported:
    """What went into a file. `error` is where its source broke off; everything before it is in the file."""

    blocks: int
    transactions: int
    rows: int
    not_verifiable: int
    error: FormatError | None


class _Writer:
    """Gathers rows and writes them in row groups.

    The first row group says which columns have a fixed width. Where a later one has other lengths the file is written
    again: twice for each wide column at most, and hardly ever in a chain whose transactions are alike.
    """

    def __init__(self, path: Path, group_rows: int) -> None:
        self._path = path
        self._file: Any = None
        self._widths: dict[str, int | None] = {}
        self._group_rows = group_rows
        self._rows: dict[str, list[Any]] = {name: [] for name in SCHEMA.names}
        self._bytes = 0
        self.calls: dict[Call, int] = {}
        self.count = 0

    def signed(self, block: str, item: Signed) -> None:
        call = self.calls.setdefault(Call(item.scheme, item.recover), len(self.calls))
        check, check_signature, check_key = item.choice or (None, None, None)
        self._add(
            block=block,
            transaction=item.where,
            call=call,
            input=item.input,
            signature=item.signature,
            key=item.key or None,
            signer=item.signer,
            check=check,
            check_signature=check_signature,
            check_key=check_key,
            why=None,
        )
        self._bytes += len(item.input) + len(item.signature) + len(item.key)

    def unverifiable(self, block: str, item: Unverifiable) -> None:
        self._add(**dict.fromkeys(SCHEMA.names) | {"block": block, "transaction": item.where, "why": item.why})

    def _add(self, **row: Any) -> None:
        for name, value in row.items():
            self._rows[name].append(value)
        self.count += 1

    def end_of_block(self) -> None:
        """A row group ends with a block, so that no check is cut."""
        if len(self._rows["block"]) >= self._group_rows or self._bytes >= GROUP_BYTES:
            self.flush()

    def flush(self) -> None:
        if self._rows["block"]:
            self._open({name: _widths(self._rows[name]) for name in WIDE_COLUMNS})
            table = pa.table(self._rows, file_schema(self._widths))
            self._file.write_table(table, row_group_size=table.num_rows)
        self._rows = {name: [] for name in SCHEMA.names}
        self._bytes = 0

    def _open(self, widths: dict[str, set[int]]) -> None:
        """Has a file whose columns take values of these widths."""
        if self._file is None:
            self._widths = {name: min(those) if len(those) == 1 else None for name, those in widths.items()}
            self._file = pq.ParquetWriter(self._path, file_schema(self._widths), **WRITE_OPTIONS)
            return
        wrong = [name for name, width in self._widths.items() if width and widths[name] - {width}]
        if wrong:
            self._widths |= dict.fromkeys(wrong)
            self._write_again()

    def _write_again(self) -> None:
        """With the schema that holds now, row group by row group."""
        self._file.close()
        before = self._path.with_name(f"{self._path.name}.before")
        self._path.replace(before)
        try:
            schema = file_schema(self._widths)
            self._file = pq.ParquetWriter(self._path, schema, **WRITE_OPTIONS)
            with pq.ParquetFile(before, page_checksum_verification=True) as file:
                for place in range(file.num_row_groups):
                    table = file.read_row_group(place).cast(schema)
                    self._file.write_table(table, row_group_size=table.num_rows)
        finally:
            before.unlink()

    def close(self, broken: str = "") -> None:
        self.flush()
        if self._file is None:
            self._file = pq.ParquetWriter(self._path, SCHEMA, **WRITE_OPTIONS)
        self._file.add_key_value_metadata(with_calls(list(self.calls), broken))
        self._file.close()


def _widths(values: Sequence[bytes | None]) -> set[int]:
    return {len(value) for value in values if value is not None}


def export(records: Iterable[Record], path: Path, *, group_rows: int = GROUP_ROWS) -> Exported:
    """Writes blocks to a Parquet file, which stands under its name only when it is complete.

    A row group has about `group_rows` rows, and whole blocks. Raises OSError; a source that breaks off is no error:
    see `Exported.error`, which the file has too, so that what is missing is not taken for verified.
    """
    blocks = transactions = unverifiable = 0
    error = None
    with replacing(path) as temporary:
        writer = _Writer(temporary, group_rows)
        try:
            for record in records:
                for signed in record.signed:
                    writer.signed(record.name, signed)
                for other in record.unverifiable:
                    writer.unverifiable(record.name, other)
                blocks += 1
                transactions += record.transactions
                unverifiable += len(record.unverifiable)
                writer.end_of_block()
        except FormatError as problem:
            error = problem
        finally:
            writer.close(str(error or ""))
    return Exported(blocks, transactions, writer.count, unverifiable, error)
