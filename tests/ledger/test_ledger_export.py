"""Blocks to Parquet: what is in the file, and when there is one."""

from __future__ import annotations

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from _records import RECOVER, SM2, sm2_blocks, unverifiable_block

from node_adapter.client import Algorithm, InputKind, KeyEncoding, Scheme, SignatureEncoding
from node_adapter.errors import FormatError, LedgerError
from node_adapter.formats import Record, Signed
from node_adapter.ledger import SCHEMA, Call, export, plan_dataset
from node_adapter.ledger._schema import file_schema


def test_every_value_of_every_signature_is_in_the_file(tmp_path):
    blocks, _ = sm2_blocks(7, per_block=3)
    signer = bytes(range(20))
    special = Record(
        "block y",
        2,
        (
            Signed("y 0", RECOVER, b"\1" * 32, b"\2" * 65, recover=True, signer=signer),
            Signed("y 1", SM2, b"\3" * 32, b"\4" * 64, b"\5" * 64, choice=("check", 1, 2)),
        ),
    )
    done = export([*blocks, special, unverifiable_block()], tmp_path / "deep" / "ledger.parquet")
    assert (done.blocks, done.transactions, done.rows, done.not_verifiable, done.error) == (5, 10, 10, 1, None)
    table = pq.read_table(tmp_path / "deep" / "ledger.parquet")
    assert table.schema.equals(file_schema({"input": 32, "key": 64}))  # signatures are of two lengths
    rows = table.to_pylist()
    wanted = [(block.name, item) for block in [*blocks, special] for item in block.signed]
    for row, (name, item) in zip(rows, wanted, strict=False):
        assert (row["block"], row["transaction"]) == (name, item.where)
        assert (row["input"], row["signature"], row["key"] or b"") == (item.input, item.signature, item.key)
        assert (row["check"], row["check_signature"], row["check_key"]) == (item.choice or (None, None, None))
        assert row["signer"] == item.signer
        assert row["why"] is None
    assert rows[-1] == dict.fromkeys(SCHEMA.names) | {
        "block": "block x",
        "transaction": "block x transaction 0",
        "why": "of a type that is not <known>",
    }
    assert [row["call"] for row in rows] == [0] * 7 + [1, 0, None]
    calls = json.loads(table.schema.metadata[b"verifier.calls"]) if table.schema.metadata else None
    calls = calls or json.loads(pq.read_metadata(tmp_path / "deep" / "ledger.parquet").metadata[b"verifier.calls"])
    assert [Call.from_json(call, "") for call in calls] == [Call(SM2), Call(RECOVER, True)]


def test_row_groups_end_with_blocks(tmp_path):
    blocks, _ = sm2_blocks(50, per_block=10)
    export(blocks, tmp_path / "ledger.parquet", group_rows=15)
    metadata = pq.read_metadata(tmp_path / "ledger.parquet")
    assert [metadata.row_group(i).num_rows for i in range(metadata.num_row_groups)] == [20, 20, 10]


def test_a_later_row_group_of_other_lengths_changes_the_schema_and_no_value(tmp_path):
    lengths = [(32, 64), (32, 64), (32, 70), (20, 64), (32, 71)]
    blocks = [
        Record(f"b{n}", 1, (Signed(f"b{n} 0", SM2, bytes([n]) * a, bytes([n]) * b, bytes([n]) * 64),))
        for n, (a, b) in enumerate(lengths)
    ]
    path = tmp_path / "ledger.parquet"
    widths = {"input": 32, "signature": 64, "key": 64}
    for count, changed in [(2, ""), (3, "signature"), (5, "input")]:
        widths.pop(changed, None)
        export(blocks[:count], path, group_rows=1)
        table = pq.read_table(path)
        assert table.schema.equals(file_schema(widths))
        assert table["signature"].to_pylist() == [bytes([n]) * b for n, (_, b) in enumerate(lengths[:count])]
        assert table["input"].to_pylist() == [bytes([n]) * a for n, (a, _) in enumerate(lengths[:count])]
        assert pq.read_metadata(path).num_row_groups == count
        assert [p.name for p in tmp_path.iterdir()] == ["ledger.parquet"]
    (one,) = {call for group in plan_dataset(path).groups for call in group.calls}
    assert one == Call(SM2)


def test_a_source_that_breaks_off_keeps_what_came_before(tmp_path):
    blocks, _ = sm2_blocks(5, per_block=5)

    def broken():
        yield from blocks
        raise FormatError(77, "the file ends here")

    done = export(broken(), tmp_path / "ledger.parquet")
    assert done.rows == 5
    assert str(done.error) == "at byte 77: the file ends here"
    assert pq.read_table(tmp_path / "ledger.parquet").num_rows == 5
    # Who verifies the file is told, too: valid signatures are not the whole chain.
    plan = plan_dataset(tmp_path / "ledger.parquet")
    assert plan.rows == 5
    (missing,) = plan.unreadable
    assert missing.error == "its source broke off, and what follows is missing: at byte 77: the file ends here"
    export(blocks, tmp_path / "ledger.parquet")
    assert plan_dataset(tmp_path / "ledger.parquet").unreadable == ()


def test_a_failed_export_leaves_the_old_file_and_nothing_else(tmp_path):
    (tmp_path / "ledger.parquet").write_bytes(b"old")

    def failing():
        yield sm2_blocks(1)[0][0]
        raise OSError("the disk went away")

    with pytest.raises(OSError, match="the disk went away"):
        export(failing(), tmp_path / "ledger.parquet")
    assert [path.name for path in tmp_path.iterdir()] == ["ledger.parquet"]
    assert (tmp_path / "ledger.parquet").read_bytes() == b"old"


@pytest.mark.parametrize(
    "scheme",
    [
        SM2,
        RECOVER,
        Scheme(Algorithm.SM2, InputKind.MESSAGE, SignatureEncoding.DER_STRICT, KeyEncoding.SPKI, sm2_user_id=b""),
        Scheme(Algorithm.SM2, InputKind.MESSAGE, SignatureEncoding.DER_STRICT, KeyEncoding.SPKI, sm2_user_id=b"A"),
        Scheme(Algorithm.ECDSA_P256, InputKind.DIGEST, SignatureEncoding.RAW_RS, KeyEncoding.RAW_XY, digest_bytes=48),
    ],
)
@pytest.mark.parametrize("recover", [False, True])
def test_a_call_comes_back_from_its_names(scheme, recover):
    call = Call(scheme, recover)
    assert Call.from_json(json.loads(json.dumps(call.as_json())), "") == call


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"operation": "sign"}, r"calls\[0\]\.operation: 'sign'; it is verify or recover"),
        ({"algorithm": "RSA"}, r"calls\[0\]\.algorithm: 'RSA'; it is one of UNSPECIFIED, SM2"),
        ({"padding": 1}, r"calls\[0\]: unknown field padding"),
        ({"sm2_user_id": "zz"}, r"calls\[0\]: .*hexadecimal"),
        ({"digest_bytes": "x"}, r"calls\[0\]: "),
    ],
)
def test_a_call_that_is_wrong_names_the_field(change, problem):
    with pytest.raises(LedgerError, match=problem):
        Call.from_json(Call(SM2).as_json() | change, "calls[0]")
    with pytest.raises(LedgerError, match="is not an object"):
        Call.from_json([], "calls[0]")


def test_an_empty_chain_makes_an_empty_file(tmp_path):
    assert export([], tmp_path / "ledger.parquet").rows == 0
    assert pq.read_table(tmp_path / "ledger.parquet").equals(pa.table({n: [] for n in SCHEMA.names}, SCHEMA))
