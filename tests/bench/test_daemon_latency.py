"""bench/daemon_latency.py: every batch is answered by one of the devices, and the way there costs something."""

from __future__ import annotations

from bench.daemon_latency import line, measure


def test_what_the_daemon_adds_is_measured_beside_the_device(monkeypatch):
    monkeypatch.setenv("VERIFIER_FAKE_DEVICES", "1")
    records = list(measure(["fake:0", "cpu"], (1, 40), 3))
    assert [record.case for record in records] == [
        f"null{kind}-{items}-latency-daemon" for items in (1, 40) for kind in ("", "-enrolled")
    ]
    for record in records:
        about = record.settings
        assert 0 < about["beside_least_s"] <= about["beside_s"] < record.settings["p99"]
        assert about["served_by"] in {"cpu", "fake:0", "cpu,fake:0"}
        assert str(about["served_by"]) in line(record)
