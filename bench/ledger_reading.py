"""Reading a ledger's columns from Parquet, without verifying: what a core decodes, by how the file was written.

    python bench/ledger_reading.py --folder /tmp/reading

SM2 items (digest, signature, raw key: 160 bytes) with page checksums, one thread, the file in the page cache. Rates
are items a second of processor time: a device's rate needs so many cores, beside those of its worker and of the
process that hands out. Layouts: fixed width, as `verifier ledger export` writes values of one length, with and
without reading the columns that are empty; any width, as it writes others; that with a dictionary of keys; with
dictionaries of all columns, which is pyarrow's default; and lengths apart from bytes (DELTA_LENGTH_BYTE_ARRAY).
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from node_adapter.ledger import SCHEMA  # noqa: E402
from node_adapter.ledger._schema import WRITE_OPTIONS, file_schema  # noqa: E402

GROUP_ROWS = 65_536
WIDTHS = {"input": 32, "signature": 64, "key": 64}
NOT_EMPTY = "fixed without the empty"
READ = [field.name for field in SCHEMA if field.name not in ("block", "transaction")]


def rows(items: int, keys: int) -> pa.Table:
    """Random bytes, of `keys` different keys; the other columns as a chain with one scheme has them."""
    rng = np.random.default_rng(1)
    columns: dict[str, Any] = {field.name: pa.nulls(items, field.type) for field in SCHEMA}
    for name, width in WIDTHS.items():
        values = rng.integers(0, 256, (keys if name == "key" else items, width), np.uint8)
        if name == "key":
            values = values[rng.integers(0, keys, items)]
        data = pa.py_buffer(np.ascontiguousarray(values))
        columns[name] = pa.Array.from_buffers(pa.binary(width), items, [None, data]).cast(pa.binary())
    columns["call"] = pa.array(np.zeros(items, np.int16))
    columns["block"] = columns["transaction"] = pa.array([f"block {i // 1000}" for i in range(items)])
    return pa.table([columns[field.name] for field in SCHEMA], SCHEMA)


def layouts(table: pa.Table) -> dict[str, tuple[pa.Table, dict[str, Any]]]:
    """What is written, and how, by name."""
    dictionary = WRITE_OPTIONS["use_dictionary"]
    fixed = table.cast(file_schema(WIDTHS))
    lengths = dict.fromkeys(WIDTHS, "DELTA_LENGTH_BYTE_ARRAY")
    return {
        NOT_EMPTY: (fixed, WRITE_OPTIONS),
        "fixed width": (fixed, WRITE_OPTIONS),
        "any width": (table, WRITE_OPTIONS),
        "keys with a dictionary": (table, WRITE_OPTIONS | {"use_dictionary": [*dictionary, "key"]}),
        "dictionaries": (table, {"compression": "none", "write_page_checksum": True}),
        "lengths apart": (table, WRITE_OPTIONS | {"column_encoding": lengths}),
    }


def decode_s(path: Path, columns: list[str], **options: Any) -> float:
    """Seconds of processor time for all row groups of a file."""
    begun = time.process_time()
    with pq.ParquetFile(path, **options) as file:
        for group in range(file.num_row_groups):
            file.read_row_group(group, columns=columns, use_threads=False)
    return time.process_time() - begun


def main() -> None:
    """Writes, reads, prints a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--items", type=int, default=16 * GROUP_ROWS)
    parser.add_argument("--keys", type=int, default=1024, help="different ones")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--folder", type=Path, required=True)
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    print(f"{'layout':24} {'bytes/item':>10} {'M items/s a core':>17} {'without checksums':>18} {'memory map':>11}")
    for name, (table, how) in layouts(rows(options.items, options.keys)).items():
        path = options.folder / f"{name.replace(' ', '-')}.parquet"
        pq.write_table(table, path, row_group_size=GROUP_ROWS, **how)
        columns = ["call", *WIDTHS] if name == NOT_EMPTY else READ
        rates = [
            options.items / statistics.median(decode_s(path, columns, **reading) for _ in range(options.runs)) / 1e6
            for reading in (
                {"page_checksum_verification": True},
                {"page_checksum_verification": False},
                {"page_checksum_verification": True, "memory_map": True},
            )
        ]
        size = path.stat().st_size / options.items
        print(f"{name:24} {size:10.1f} {rates[0]:17.2f} {rates[1]:18.2f} {rates[2]:11.2f}")


if __name__ == "__main__":
    main()
