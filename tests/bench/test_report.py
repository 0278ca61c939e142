"""Records become tables, and survive their file."""

from __future__ import annotations

import pytest

from verifier.bench.records import Record, append_records, load_average, read_records, records_in
from verifier.bench.report import BEGIN, END, amount, figures_table, newest, rewrite
from verifier.drivers import list_devices
from verifier.errors import ConfigError


def record(case="sm2-verify-unknown", batch=8, rate=3.54e7, date="2026-01-01", **more):
    more = {"device": "NVIDIA H200", **more}
    return Record(case=case, batch=batch, rate=rate, unit="items/s", date=date, **more)


def test_a_file_of_records_reads_back(tmp_path):
    path = tmp_path / "results" / "some.jsonl"
    first, second = record(includes=("transfer", "parsing"), settings={"streams": 4}), record(case="other")
    append_records(path, [first])
    append_records(path, [second])
    assert read_records(path) == [first, second]


def test_a_folder_may_hold_other_tables_too(tmp_path):
    append_records(tmp_path / "b.jsonl", [record()])
    append_records(tmp_path / "a.jsonl", [record(case="other")])
    (tmp_path / "tables.jsonl").write_text('{"table": "skinny"}\n')
    assert [each.case for each in records_in(tmp_path)] == ["other", "sm2-verify-unknown"]


@pytest.mark.parametrize("line", ['{"table": "skinny"}', "no JSON", '{"case": "x", "includes": [], "odd": 1}'])
def test_a_line_that_is_no_record_is_named(tmp_path, line):
    path = tmp_path / "some.jsonl"
    append_records(path, [record()])
    path.write_text(path.read_text() + line + "\n")
    with pytest.raises(ConfigError, match=r"some\.jsonl:2: not a record of `verifier bench`"):
        read_records(path)


def test_the_newest_wins():
    old, new, other = record(rate=1.0), record(rate=2.0, date="2026-02-01"), record(batch=9)
    assert newest([new, old, other]) == [new, other]


def test_the_table_of_gpus_has_the_largest_batch_and_no_limits():
    rows = figures_table(
        [
            record(cuda="CUDA 13.0"),
            record(cuda="CUDA 13.0", batch=1 << 20, fraction_of_limit=0.9, limit="copy in"),
            record(case="limit-copy-in", cuda="CUDA 13.0"),
            record(case="sm2-verify-1-latency", cuda="CUDA 13.0"),
        ]
    ).splitlines()
    assert [row for row in rows if row.startswith("| sm2")] == [rows[2]]
    assert "| 35.4 M items/s | 1,048,576 |" in rows[2]
    assert "90% of copy in" in rows[2]


def test_how_many_keys_are_enrolled_is_no_point_of_a_sweep():
    records = [
        record(case="sm2-verify-enrolled", cuda="CUDA 13.0", settings={"keys": 10_000}),
        record(case="sm2-verify-enrolled-kernel", cuda="CUDA 13.0", settings={"keys": 10_000}),
        record(case="transport-null", cuda="CUDA 13.0"),
        record(cuda="CUDA 13.0", settings={"keys": "SEC1_COMPRESSED"}),
    ]
    rows = [row.split()[1] for row in figures_table(records).splitlines()[2:] if row.startswith("| ")]
    assert rows == ["sm2-verify-enrolled"]


def test_ciphers_have_a_row_for_both_places_of_their_data():
    rows = figures_table(
        [
            record(case="cipher-sm4-ctr-device", cuda="CUDA 13.0", rate=4.9e12),
            record(case="cipher-sm4-ctr-host", cuda="CUDA 13.0", rate=2.7e11, fraction_of_limit=0.68, limit="copies"),
            record(case="cipher-aes-128-ctr-device", cuda="CUDA 13.0", rate=4.5e12),
        ]
    ).splitlines()
    assert "| sm4-ctr | 4.9 T items/s | 270 G items/s | 68% of copies | NVIDIA H200 |" in rows
    assert "| aes-128-ctr | 4.5 T items/s |  |  | NVIDIA H200 |" in rows


def test_ciphers_on_a_core_stand_beside_libraries():
    rows = figures_table(
        [
            record(case="cipher-aria-128-ctr-cpu", rate=8e9),
            record(case="cipher-aria-128-ctr-cpu-openssl", rate=1.6e9),
            record(case="cipher-skinny-128-256-ecb-cpu", rate=8e9),
            record(case="cipher-aria-128-ctr-cpu", rate=4e9, device="another"),
        ]
    ).splitlines()
    device = record().device
    assert f"| aria-128-ctr | 1.00 | 5.0 × openssl | {device} |" in rows
    assert "| aria-128-ctr | 0.50 |  | another |" in rows, "a library is compared with on its own CPU"
    assert f"| skinny-128-256-ecb | 1.00 |  | {device} |" in rows


def test_the_table_of_cpus_has_ratios():
    rows = figures_table(
        [
            record(case="sm2-verify-unknown-cpu", rate=9000.0, settings={"compiler": "g++ 13"}),
            record(case="sm2-verify-unknown-cpu-openssl", rate=3000.0),
            record(case="p256-verify-unknown-cpu", rate=8000.0),
            record(case="p256-verify-unknown-cpu-gmssl", rate=80.0),
            record(case="secp256k1-recover-cpu", rate=900.0),
            record(case="secp256k1-recover-cpu-openssl", rate=300.0),
            record(case="ledger-verify-sm2-cpu", rate=1.0),
        ]
    ).splitlines()[3:]
    assert rows[0] == "| one CPU core | ÷ gmssl | ÷ openssl | compiler |"
    assert rows[4] == "| secp256k1-recover-cpu |  | 3 |  |"
    assert not any("ledger" in row for row in rows)
    assert rows[2] == "| sm2-verify-unknown-cpu |  | 3 | g++ 13 |"
    assert rows[3] == "| p256-verify-unknown-cpu | 100 |  |  |"


def test_a_provider_has_a_row_of_its_own_and_ratios_are_of_one_cpu():
    case, provided = "p256-verify-unknown-cpu", {"provider": "crypto_mb", "compiler": "zig"}
    rows = figures_table(
        [
            record(case=case, rate=8000.0, date="2026-01-02"),
            record(case=f"{case}-openssl", rate=4000.0),
            record(case=case, rate=50000.0, settings=provided, device="EPYC"),
            record(case=f"{case}-crypto_mb", rate=50000.0, device="EPYC"),
            record(case=case, rate=20000.0, date="2026-01-01", device="EPYC"),
        ]
    ).splitlines()[3:]
    assert rows[0] == "| one CPU core | ÷ crypto_mb | ÷ openssl | compiler |"
    assert rows[2] == f"| {case} |  | 2 |  |"
    assert rows[3] == f"| {case}, crypto_mb | 1 |  | zig |"


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (3.54e7, "items/s", "35.4 M items/s"),
        (0.00093, "s", "0.930 ms"),
        (2.5, "s", "2.50 s"),
        (7, "items/s", "7 items/s"),
    ],
)
def test_amounts(value, unit, text):
    assert amount(value, unit) == text


def test_only_what_is_between_the_markers_changes():
    assert rewrite(f"a\n{BEGIN}\nold\n{END}\nz", "new") == f"a\n{BEGIN}\nnew\n{END}\nz"
    with pytest.raises(ValueError, match="markers"):
        rewrite("no markers", "new")


def test_a_record_says_how_it_came_about(monkeypatch):
    monkeypatch.setattr("sys.argv", ["verifier", "bench", "--quick", "--output", "somewhere.jsonl"])
    (cpu,) = [device for device in list_devices() if device.kind == "cpu"]
    made = Record.of_times("a-cpu", cpu, 100, [1.0, 2.0, 4.0], 100, limit=("copy in", 200.0))
    assert (made.rate, made.spread, made.runs, made.fraction_of_limit) == (50.0, 1.5, 3, 0.25)
    assert made.command == "verifier bench --quick"
    assert made.settings["compiler"]
    seconds = Record.of_times("b-cpu", cpu, 1, [0.004, 0.002], 1, unit="s", limit=("launch", 0.0015))
    assert seconds.rate == 0.003
    assert seconds.fraction_of_limit == 0.5


@pytest.mark.parametrize(
    ("arguments", "command"),
    [
        (["/somewhere/bench/soak.py", "--seconds", "60", "--out", "s.jsonl"], "python bench/soak.py --seconds 60"),
        (["/somewhere/bench/soak.py", "--out=s.jsonl", "--items", "9"], "python bench/soak.py --items 9"),
        (["/somewhere/verifier/__main__.py", "chain", "bench", "--output"], "verifier chain bench"),
        (["/somewhere/verifier/__main__.py", "chain", "bench", "--plot", "/a/b.svg"], "verifier chain bench"),
    ],
)
def test_a_record_says_by_which_program(monkeypatch, arguments, command):
    monkeypatch.setattr("sys.argv", arguments)
    (cpu,) = [device for device in list_devices() if device.kind == "cpu"]
    made = Record.of_rates("a-cpu", cpu, 1, [0.0], runs=7, settings=load_average())
    assert (made.command, made.rate, made.spread, made.runs) == (command, 0.0, 0.0, 7)
    assert made.settings["cores"] >= 1
