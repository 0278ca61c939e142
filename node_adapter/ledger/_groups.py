"""One row group: columns to batches, codes to verdicts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from node_adapter.client._columns import Column, pack
from node_adapter.errors import AdapterError, LedgerError
from node_adapter.formats import Outcome as SignatureOutcome
from node_adapter.formats import Signed, settle
from node_adapter.ledger._calls import ADDRESS_BYTES, Call
from node_adapter.ledger._outcome import NOT_VERIFIABLE, Failure, Outcome, first_line
from node_adapter.ledger._requests import MAX_BYTES, MAX_ITEMS, Decider, Decision
from node_adapter.ledger._schema import read_calls
from verifier.errors import VerifierError
from verifier.model import Code, bits_of

__all__ = ["open_ledger", "verify_group"]

_Rows = npt.NDArray[np.intp] | slice  # of a row group

_EMPTY_BYTES = 1024  # of a column without a value, however many rows
_VERIFIED = ["call", "input", "signature", "key", "signer", "check", "check_signature", "check_key", "why"]


def open_ledger(path: Path) -> tuple[Any, list[Call]]:
    """An open file and its calls. Raises LedgerError, and OSError or pyarrow's errors for what is no Parquet."""
    file = pq.ParquetFile(path, page_checksum_verification=True)
    try:
        return file, read_calls(file.schema_arrow, file.metadata.metadata or {})
    except LedgerError:
        file.close()
        raise


def verify_group(engine: Decider, path: Path, name: str, digest: str, row_group: int) -> Outcome:
    """Every verdict of a row group. What cannot be read or verified is an outcome with an error, never raised."""
    try:
        file, calls = open_ledger(path)
        with file:
            # Row groups are read beside each other: a column a thread on top would only cost processor time.
            table = _read(file, row_group)
            used = [calls[place] for place in _used(table["call"], len(calls))]
            plugins = engine.plugins(used)
            codes, firsts = _codes(engine, table, calls)
            rows = np.flatnonzero(firsts & (codes != Code.VALID))
            names = file.read_row_group(row_group, columns=["block", "transaction"]) if rows.size else None
    except (OSError, pa.ArrowException, AdapterError, VerifierError) as error:
        return Outcome(name, digest, row_group, error=first_line(error))
    not_verifiable = np.asarray(pc.is_null(table["call"]))
    counts = Counter(
        {Code(code).name: int(n) for code, n in enumerate(np.bincount(codes[firsts & ~not_verifiable])) if n}
    )
    if not_verifiable.any():
        counts[NOT_VERIFIABLE] = int(not_verifiable.sum())
    failures = _failures(rows, codes, not_verifiable, table["why"], names)
    return Outcome(name, digest, row_group, plugins, dict(sorted(counts.items())), failures)


def _read(file: Any, row_group: int) -> Any:
    """The columns that verdicts come from. Those without a value are not read: every file has some, and to find them
    empty takes time, too (bench/ledger_reading.py)."""
    group = file.metadata.row_group(row_group)
    empty = {part.path_in_schema for part in map(group.column, range(group.num_columns)) if _is_empty(part)}
    names = [name for name in _VERIFIED if name not in empty]
    table = file.read_row_group(row_group, columns=names, use_threads=False)
    for name in _VERIFIED:
        if name in empty:
            table = table.append_column(name, pa.nulls(table.num_rows))
    return table


def _is_empty(part: Any) -> bool:
    """Of a column of a row group, by its statistics: there are as many nulls as rows, no least value, and no room for
    one. A flipped bit makes one of these wrong, and not all."""
    found = part.statistics if part.is_stats_set else None
    if found is None or found.has_min_max or found.null_count != part.num_values:
        return False
    return bool(part.path_in_schema != "call" and part.total_uncompressed_size <= _EMPTY_BYTES)


def _used(column: Any, calls: int) -> list[int]:
    used = sorted(place for place in pc.unique(column).to_pylist() if place is not None)
    if used and not 0 <= used[0] <= used[-1] < calls:
        raise LedgerError("column call", f"{used}; the file has {calls} calls")
    return used


def _codes(engine: Decider, table: Any, calls: Sequence[Call]) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.bool_]]:
    """A code for every row, and which rows stand for a signature: of those of a check, each signature's first."""
    codes = np.zeros(table.num_rows, np.uint8)
    signers = table["signer"]
    addresses = None if signers.null_count == len(signers) else np.zeros((table.num_rows, ADDRESS_BYTES), np.uint8)
    waiting = []
    for place, rows in _by_call(table["call"]):
        part = table if isinstance(rows, slice) else table.take(pa.array(rows))
        waiting += _submit(engine, calls[place], part, rows)
    for rows, future in waiting:
        result = future.result()
        # What stages left as RETRY is no verdict either.
        codes[rows] = np.where(bits_of(result.decided, result.items), result.codes, np.uint8(Code.UNDECIDED))
        if addresses is not None and len(result.outputs) > 1:
            addresses[rows] = result.outputs[1][:, :ADDRESS_BYTES]
    if addresses is not None:
        _compare_signers(codes, addresses, signers)
    return codes, _settle_checks(codes, table, calls)


def _by_call(column: Any) -> Iterator[tuple[int, _Rows]]:
    """Each call of a row group, and its rows: a slice where they are all of them, as they mostly are."""
    ends = pc.min_max(column).as_py()
    if not column.null_count and ends["min"] == ends["max"]:
        if ends["min"] is not None:
            yield ends["min"], slice(0, len(column))
        return
    places = np.asarray(pc.fill_null(column, -1))
    for place in np.unique(places[places >= 0]):
        yield int(place), np.flatnonzero(places == place)


def _submit(engine: Decider, call: Call, part: Any, rows: _Rows) -> list[tuple[_Rows, Decision]]:
    names = ["input", "signature", *(["key"] if call.has_keys else [])]
    columns = {name: _column(name, part[name], call.scheme.width(name)) for name in names}
    items, total = part.num_rows, sum(column.data.size for column in columns.values())
    step = min(MAX_ITEMS, max(1, int(items * MAX_BYTES / max(total, 1))))
    parts = []
    for start in range(0, items, step):
        stop = min(start + step, items)
        some = slice(start, stop) if isinstance(rows, slice) else rows[start:stop]
        parts.append((some, engine.submit(call, columns, start, stop)))
    return parts


def _column(name: str, values: Any, width: int | None) -> Column:
    """An Arrow column as one of the client's, without a copy."""
    array = values
    if isinstance(values, pa.ChunkedArray):
        # One chunk, as row groups mostly have, is not copied: `combine_chunks` would.
        none = pa.array([], values.type)
        array = values.chunk(0) if values.num_chunks == 1 else pa.concat_arrays([none, *values.chunks])
    if array.null_count:
        raise LedgerError(f"column {name}", f"{array.null_count} nulls where the call needs a value")
    if pa.types.is_fixed_size_binary(array.type):
        return _fixed_column(name, array, width)
    _, offsets, data = array.buffers()
    ends = np.frombuffer(offsets, np.int32)[array.offset : array.offset + len(array) + 1]
    content = np.frombuffer(data, np.uint8) if data is not None and data.size else np.empty(0, np.uint8)
    if width and ends[-1] - ends[0] == width * len(array) and (ends[1:] - ends[:-1] == width).all():
        return Column(content[ends[0] : ends[-1]], len(array), width)
    return Column(content, len(array), 0, ends.astype(np.int64))


def _fixed_column(name: str, array: Any, width: int | None) -> Column:
    """Where the encoding wants another width each value is malformed, which is for the verifier to say."""
    _, data = array.buffers()
    items, given = len(array), array.type.byte_width
    content = np.frombuffer(data or b"", np.uint8)[array.offset * given :][: items * given]
    return pack(name, content.reshape(items, given), width if width == given else None)


def _compare_signers(codes: npt.NDArray[np.uint8], addresses: npt.NDArray[np.uint8], signers: Any) -> None:
    """A recovered key is invalid where the row names another signer."""
    named = np.flatnonzero(np.asarray(pc.is_valid(signers)))
    wanted = signers.take(pa.array(named)).combine_chunks()
    lengths = pc.min_max(pc.binary_length(wanted)).as_py()
    for length in (lengths["min"], lengths["max"]):
        if length != ADDRESS_BYTES:
            raise LedgerError("column signer", f"{length} bytes; an address has {ADDRESS_BYTES}")
    given = _column("signer", wanted, ADDRESS_BYTES)
    differs = (given.data.reshape(-1, ADDRESS_BYTES) != addresses[named]).any(axis=1)
    codes[named[differs & (codes[named] == Code.VALID)]] = Code.INVALID


def _settle_checks(codes: npt.NDArray[np.uint8], table: Any, calls: Sequence[Call]) -> npt.NDArray[np.bool_]:
    """Gives each signature of a check its verdict, on its first row. They are few, and depend on their order."""
    firsts = np.ones(table.num_rows, np.bool_)
    if table["check"].null_count == table.num_rows:
        return firsts
    rows = np.flatnonzero(np.asarray(pc.is_valid(table["check"])))
    part = table.select(["check", "check_signature", "check_key"]).take(pa.array(rows)).to_pydict()
    choices = list(zip(part["check"], part["check_signature"], part["check_key"], strict=True))
    signed = [Signed("", calls[0].scheme, b"", b"", choice=choice) for choice in choices]
    verdicts = settle(signed, SignatureOutcome(codes[rows]))
    heads = [place for place, choice in enumerate(choices) if not place or choices[place - 1][:2] != choice[:2]]
    firsts[rows] = False
    firsts[rows[heads]] = True
    codes[rows[heads]] = [verdict.code for verdict in verdicts]
    return firsts


def _failures(
    rows: npt.NDArray[np.intp],
    codes: npt.NDArray[np.uint8],
    not_verifiable: npt.NDArray[np.bool_],
    why: Any,
    names: Any,
) -> tuple[Failure, ...]:
    if names is None:
        return ()
    chosen = pa.array(rows)
    texts: Mapping[str, list[Any]] = names.take(chosen).to_pydict()
    reasons = why.take(chosen).to_pylist()
    return tuple(
        Failure(
            int(row),
            NOT_VERIFIABLE if not_verifiable[row] else Code(int(codes[row])).name,
            block or "",
            transaction or "",
            reason or "",
        )
        for row, block, transaction, reason in zip(rows, texts["block"], texts["transaction"], reasons, strict=True)
    )
