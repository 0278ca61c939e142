"""`verifier ledger` as a user runs it: what it prints, and how it ends."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from _records import expected, sm2_blocks

from node_adapter.formats import Record
from node_adapter.ledger import export


def ledger(*arguments, **options):
    command = [sys.executable, "-m", "verifier", "ledger", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, **options)


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    folder = tmp_path_factory.mktemp("dataset")
    blocks, made = sm2_blocks(300)
    export(blocks, folder / "ledger" / "a.parquet")
    return folder / "ledger", made


def test_spoilt_signatures_end_it_with_1_and_the_report_lies_beside_the_dataset(dataset):
    folder, made = dataset
    done = ledger("verify", folder, "--device", "cpu", "--json")
    assert done.returncode == 1, done.stderr
    found = json.loads(done.stdout)
    assert found["signatures"] == expected(made)
    assert found["valid"] is False
    assert found["failures"] == int((~made.valid).sum())
    assert sorted(path.name for path in Path(f"{folder}.report").iterdir()) == [
        "checkpoint.jsonl",
        "failures.parquet",
        "report.html",
        "summary.parquet",
    ]


def test_all_valid_ends_it_with_0(tmp_path):
    (block,), made = sm2_blocks(40, per_block=40)
    signed = tuple(item for item, valid in zip(block.signed, made.valid, strict=True) if valid)
    export([Record(block.name, len(signed), signed)], tmp_path / "a.parquet")
    done = ledger("verify", tmp_path / "a.parquet", "--device", "cpu", "--report", tmp_path / "report")
    assert done.returncode == 0, done.stderr
    assert "VALID; report in" in done.stdout


def test_what_cannot_be_read_ends_it_with_2_and_is_named(dataset, tmp_path):
    folder, _ = dataset
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "good.parquet").write_bytes((folder / "a.parquet").read_bytes())
    (tmp_path / "data" / "cut.parquet").write_bytes((folder / "a.parquet").read_bytes()[:1000])
    done = ledger("verify", tmp_path / "data", "--device", "cpu")
    assert done.returncode == 2
    assert "not read: cut.parquet: ArrowInvalid" in done.stderr
    assert "1 UNREADABLE" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["verify", "nothing"], "nothing: No such"),
        (["verify", ".", "--ray", "local", "--processes", 2], "leave out one of both"),
        (["verify", "."], "no *.parquet file is in this folder"),
        (["export", "--format", "ethereum", "--out", "data", "missing.rlp"], "missing.rlp: No such"),
        (["export", "--format", "ethereum", "--out", "data", "a/x", "b/x"], "would be written to x.parquet"),
        (["export", "--format", "bitcoin", "--jobs", 2, "--out", "data", "x"], "one job reads them"),
        (["export", "--format", "morse", "--out", "data", "x"], "morse"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(tmp_path, arguments, problem):
    done = ledger(*arguments, cwd=tmp_path)
    assert done.returncode == 2
    assert problem in " ".join(done.stderr.replace("│", " ").split())
    assert "Traceback" not in done.stderr
    assert not list(tmp_path.glob("*.report"))


def test_a_missing_extra_is_named(tmp_path):
    blocks, _ = sm2_blocks(1)
    export(blocks, tmp_path / "a.parquet")
    hide = "import sys; sys.modules['pyarrow'] = None; from verifier.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", hide, "ledger", "verify", str(tmp_path / "a.parquet")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert "pip install 'verifier[bulk]'" in done.stderr


def test_real_chains_are_exported_and_verified(shared, tmp_path):
    """The counts that `verifier verify` gives for the same files."""
    names = ("ethereum-chain.rlp", "ethereum-blockchain.blocks")
    files = [shared / "real" / name for name in names]
    done = ledger("export", "--format", "ethereum", "--jobs", 2, "--out", tmp_path / "chain", *files)
    assert done.returncode == 0, done.stderr
    assert "600 blocks, 603 transactions, 604 rows, 0 not verifiable" in done.stdout
    done = ledger("verify", tmp_path / "chain", "--device", "cpu", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["signatures"] == {"VALID": 604 + 32}
