"""Datasets through real devices: every verdict, every kind of damage, and what is left to do."""

from __future__ import annotations

import struct
from concurrent.futures import Future
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from _records import RECOVER, SECP256K1, SM2, expected, sm2_blocks, unverifiable_block
from Cryptodome.Hash import keccak

from node_adapter.errors import LedgerError
from node_adapter.formats import Record, Signed
from node_adapter.ledger import SCHEMA, Checkpoint, Options, export, plan_dataset, totals, verify_dataset
from node_adapter.ledger._groups import _is_empty, verify_group
from node_adapter.ledger._schema import with_calls
from verifier.bench.signatures import make_signatures
from verifier.model import BatchResult, Code

CPU = Options(("cpu",))


def run(dataset, tmp_path):
    with Checkpoint(tmp_path / "checkpoint.jsonl") as done:
        return verify_dataset(plan_dataset(dataset), done, CPU)


def test_every_signature_gets_its_verdict(tmp_path):
    blocks, made = sm2_blocks(900)
    export([*blocks, unverifiable_block()], tmp_path / "data" / "a.parquet", group_rows=300)
    outcomes = run(tmp_path / "data", tmp_path)
    assert [(o.path, o.row_group) for o in outcomes] == [("a.parquet", i) for i in range(len(outcomes))]
    assert totals(outcomes) == expected(made) | {"NOT_VERIFIABLE": 1}
    failures = [(f.transaction, f.verdict) for o in outcomes for f in o.failures]
    bad = np.flatnonzero(~made.valid)
    assert failures[:-1] == [
        (f"block {place // 100} transaction {place % 100}", Code(int(made.codes[place])).name) for place in bad
    ]
    assert failures[-1] == ("block x transaction 0", "NOT_VERIFIABLE")
    assert outcomes[-1].failures[-1].why == "of a type that is not <known>"
    assert not any(o.valid for o in outcomes if o.failures)
    assert [sorted(o.plugins) for o in outcomes] == [["sm2"]] * 3 + [[]]


def recovery(made, at, signer):
    rsv = made.signatures[at].tobytes() + bytes([made.recovery[at]])
    return Signed(f"recover {at}", RECOVER, made.digests[at].tobytes(), rsv, recover=True, signer=signer)


def test_schemes_signers_and_checks_of_several_keys_in_one_row_group(tmp_path):
    sm2 = make_signatures("SM2", 3, keys=3)
    made = make_signatures("ECDSA_SECP256K1", 40, keys=8)
    _, signers = np.unique(made.keys, axis=0, return_index=True)  # a signature by each of several keys

    def key(place, by, check):
        return Signed(
            f"multi {by}",
            SECP256K1,
            made.digests[signers[place]].tobytes(),
            made.signatures[signers[place]].tobytes(),
            made.keys[signers[by]].tobytes(),
            choice=check,
        )

    def recovered(place, signer):
        return recovery(made, signers[place], signer)

    address = keccak.new(digest_bits=256, data=made.keys[signers[0]].tobytes()).digest()[-20:]
    signed = (
        Signed("sm2 0", SM2, *(getattr(sm2, n)[0].tobytes() for n in ("digests", "signatures", "keys"))),
        recovered(0, address),
        recovered(1, address),  # another's
        recovered(2, None),
        # Two of three keys signed, in the keys' order.
        *(key(0, by, ("check a", 0, by)) for by in range(3)),
        *(key(2, by, ("check a", 1, by)) for by in range(3)),
        # The right keys in the wrong order.
        *(key(2, by, ("check b", 0, by)) for by in range(3)),
        *(key(0, by, ("check b", 1, by)) for by in range(3)),
    )
    export([Record("block 0", 1, signed)], tmp_path / "a.parquet")
    (outcome,) = run(tmp_path / "a.parquet", tmp_path)
    assert outcome.error == ""
    assert outcome.counts == {"INVALID": 2, "VALID": 6}
    assert [(f.row, f.verdict) for f in outcome.failures] == [(2, "INVALID"), (13, "INVALID")]
    assert outcome.plugins.keys() == {"ecdsa", "sm2"}


def damage(path, make):
    table = pq.read_table(path)
    calls = {k: v for k, v in pq.read_metadata(path).metadata.items() if k.startswith(b"verifier")}
    table = make(table)
    metadata = {**calls, **(table.schema.metadata or {})}
    pq.write_table(table.replace_schema_metadata(metadata), path)


@pytest.mark.parametrize(
    ("make", "problem"),
    [
        (lambda t: t.drop(["signature"]), "column signature: missing"),
        (lambda t: t.set_column(2, "call", t["call"].cast(pa.int64())), "column call: type int64; it is int16"),
        (lambda t: t.replace_schema_metadata({"verifier.ledger": "9"}), "version 9; this program reads 1"),
        (lambda t: t.replace_schema_metadata({"verifier.calls": "{"}), "verifier.calls: not JSON"),
        (lambda t: t.replace_schema_metadata({"verifier.calls": "3"}), "verifier.calls: missing or not a list"),
    ],
)
def test_a_file_of_another_schema_is_named_and_the_others_are_verified(tmp_path, make, problem):
    blocks, made = sm2_blocks(20)
    for name in ("a", "b"):
        export(blocks, tmp_path / "data" / f"{name}.parquet")
    damage(tmp_path / "data" / "a.parquet", make)
    bad, good = run(tmp_path / "data", tmp_path)
    assert (bad.path, bad.row_group) == ("a.parquet", -1)
    assert problem in bad.error
    assert good.counts == expected(made)


def test_a_file_that_changes_meanwhile_is_an_error_and_not_written_down(tmp_path):
    blocks, made = sm2_blocks(20)
    path = tmp_path / "data" / "a.parquet"
    export(blocks, path)
    plan = plan_dataset(tmp_path / "data")
    others, _ = sm2_blocks(20, seed=2)
    export(others, path)
    with Checkpoint(tmp_path / "checkpoint.jsonl") as done:
        (outcome,) = verify_dataset(plan, done, CPU)
    assert outcome.error == "the file was changed while it was verified: verify it again"
    assert (tmp_path / "checkpoint.jsonl").read_bytes() == b""
    export(blocks, path)
    (outcome,) = run(tmp_path / "data", tmp_path)
    assert outcome.counts == expected(made)


@pytest.mark.parametrize(
    ("column", "value", "problem"),
    [
        ("call", [7], "column call: [7]; the file has 1 calls"),
        ("call", [-2], "column call: [-2]"),
        ("key", [None], "column key: 20 nulls where the call needs a value"),
        ("signer", [b"short"], "column signer: 5 bytes; an address has 20"),
        ("signer", [b"a" * 20, b"b" * 40], "column signer: 40 bytes; an address has 20"),
    ],
)
def test_rows_that_make_no_sense_are_an_error_of_their_row_group(tmp_path, column, value, problem):
    blocks, made = sm2_blocks(40, per_block=20)
    export(blocks, tmp_path / "a.parquet", group_rows=20)
    metadata = pq.read_metadata(tmp_path / "a.parquet").metadata
    groups = [pq.ParquetFile(tmp_path / "a.parquet").read_row_group(place).cast(SCHEMA) for place in range(2)]
    place = SCHEMA.get_field_index(column)
    groups[0] = groups[0].set_column(
        place, SCHEMA.field(column), pa.array((value * 20)[:20], SCHEMA.field(column).type)
    )
    with pq.ParquetWriter(tmp_path / "a.parquet", SCHEMA) as writer:
        for group in groups:
            writer.write_table(group)
        writer.add_key_value_metadata({k: v for k, v in metadata.items() if k.startswith(b"verifier")})
    bad, good = run(tmp_path / "a.parquet", tmp_path)
    assert problem in bad.error
    assert good.counts == expected(made.part(20, 40))


def test_a_damaged_page_is_an_error_and_never_a_verdict(tmp_path):
    blocks, made = sm2_blocks(60, per_block=20)
    path = tmp_path / "a.parquet"
    export(blocks, path, group_rows=20)
    data = bytearray(path.read_bytes())
    place = bytes(data).index(made.signatures[25].tobytes())
    data[place + 10] ^= 1
    path.write_bytes(data)
    first, second, third = run(path, tmp_path)
    assert "row" not in first.error
    assert first.counts == expected(made.part(0, 20))
    assert "CRC" in second.error or "corrupt" in second.error.lower()
    assert third.counts == expected(made.part(40, 60))
    assert not second.decided


def test_files_that_are_cut_or_no_parquet_are_named_and_the_rest_goes_on(tmp_path):
    blocks, made = sm2_blocks(20)
    for name in ("a", "b", "c", "d"):
        export(blocks, tmp_path / "data" / f"{name}.parquet")
    whole = (tmp_path / "data" / "a.parquet").read_bytes()
    (tmp_path / "data" / "a.parquet").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "data" / "b.parquet").write_bytes(b"")
    (tmp_path / "data" / "c.parquet").write_bytes(whole[:-8] + struct.pack("<I", 1 << 30) + b"PAR1")
    outcomes = run(tmp_path / "data", tmp_path)
    assert [o.path for o in outcomes if o.error] == ["a.parquet", "b.parquet", "c.parquet"]
    assert all("\n" not in o.error for o in outcomes)
    assert outcomes[-1].counts == expected(made)


def rewritten(path, schema, **options):
    """The file with another schema."""
    file = pq.ParquetFile(path)
    groups = [file.read_row_group(place).cast(schema) for place in range(file.num_row_groups)]
    metadata = {k: v for k, v in file.metadata.metadata.items() if k.startswith(b"verifier")}
    with pq.ParquetWriter(path, schema, **options) as writer:
        for group in groups:
            writer.write_table(group)
        writer.add_key_value_metadata(metadata)


def test_columns_of_fixed_and_of_any_width_give_the_same_verdicts(tmp_path):
    blocks, made = sm2_blocks(60, per_block=20)
    path = tmp_path / "a.parquet"
    export(blocks, path, group_rows=20)
    assert pa.types.is_fixed_size_binary(pq.read_schema(path).field("signature").type)
    fixed = [(o.counts, o.failures) for o in run(path, tmp_path / "fixed")]
    assert [counts for counts, _ in fixed] == [expected(made.part(at, at + 20)) for at in (0, 20, 40)]
    rewritten(path, SCHEMA)
    assert [(o.counts, o.failures) for o in run(path, tmp_path / "any")] == fixed


def test_a_fixed_width_that_is_not_the_encodings_is_each_items_own_fault(tmp_path):
    blocks, _ = sm2_blocks(5)
    longer = [
        Record(b.name, 5, tuple(Signed(s.where, s.scheme, s.input, s.signature + b"x", s.key) for s in b.signed))
        for b in blocks
    ]
    export(longer, tmp_path / "a.parquet")
    (outcome,) = run(tmp_path / "a.parquet", tmp_path)
    assert outcome.counts == {"SIGNATURE_LENGTH": 5}


@pytest.mark.parametrize("statistics", [True, False])
def test_a_column_counts_as_empty_only_where_it_is(tmp_path, statistics):
    # Somebody else's signature: who took the column of signers for empty would find it valid.
    made = make_signatures("ECDSA_SECP256K1", 4)
    signed = [recovery(made, at, bytes(20) if at == 2 else None) for at in range(4)]
    path = tmp_path / "a.parquet"
    export([Record("block 0", 4, tuple(signed))], path)
    rewritten(path, pq.read_schema(path), write_statistics=statistics)
    (outcome,) = run(path, tmp_path)
    assert outcome.counts == {"INVALID": 1, "VALID": 3}


@pytest.mark.parametrize(
    "other",
    [
        {"is_stats_set": False},
        {"has_min_max": True},
        {"null_count": 3},
        {"total_uncompressed_size": 1025},
        {"path_in_schema": "call"},
    ],
)
def test_whatever_speaks_against_it_a_column_is_read(other):
    says = {"is_stats_set": True, "has_min_max": False, "null_count": 4, "num_values": 4}
    says |= {"total_uncompressed_size": 200, "path_in_schema": "signer"}

    def part(told):
        return SimpleNamespace(**told, statistics=SimpleNamespace(**told))

    assert _is_empty(part(says))
    assert not _is_empty(part(says | other))


class LeavesOpen:
    """Stands for an engine whose device left the first item of every batch between two stages."""

    def plugins(self, _calls):
        return {"sm2": "digest"}

    def submit(self, _call, _columns, start, stop):
        items = stop - start
        codes = np.full(items, Code.VALID, np.uint8)
        codes[0] = Code.RETRY
        decided = np.packbits(codes != Code.RETRY, bitorder="little")
        done = Future()
        done.set_result(BatchResult(items, decided, decided, codes))
        return done


def test_what_stages_left_open_is_undecided_and_asked_again(tmp_path):
    blocks, _ = sm2_blocks(5)
    export(blocks, tmp_path / "a.parquet")
    (group,) = plan_dataset(tmp_path / "a.parquet").groups
    outcome = verify_group(LeavesOpen(), group.path, group.name, group.digest, group.row_group)
    assert outcome.counts == {"UNDECIDED": 1, "VALID": 4}
    assert not outcome.decided
    assert [failure.verdict for failure in outcome.failures] == ["UNDECIDED"]


def test_other_parquet_files_are_refused_by_name(tmp_path):
    pq.write_table(pa.table({"x": [1]}), tmp_path / "x.parquet")
    (outcome,) = plan_dataset(tmp_path).unreadable
    assert "this is no ledger file; verifier ledger export makes one" in outcome.error
    (tmp_path / "empty").mkdir()
    with pytest.raises(LedgerError, match=r"no \*\.parquet file"):
        plan_dataset(tmp_path / "empty")


def test_what_no_plugin_serves_is_an_error_of_its_row_group(tmp_path):
    blocks, _ = sm2_blocks(3)
    odd = [
        Record(b.name, 3, tuple(Signed(s.where, s.scheme, s.input, s.signature, recover=True) for s in b.signed))
        for b in blocks
    ]
    export(odd, tmp_path / "odd.parquet")
    export(blocks, tmp_path / "sm2.parquet")
    odd_one, good = run(tmp_path, tmp_path)
    assert "recover" in odd_one.error
    assert not good.error


def test_calls_without_rows_are_no_problem(tmp_path):
    table = pa.table({name: [] for name in SCHEMA.names}, SCHEMA)
    pq.write_table(table.replace_schema_metadata(with_calls([])), tmp_path / "a.parquet")
    assert all(o.valid for o in run(tmp_path / "a.parquet", tmp_path))
