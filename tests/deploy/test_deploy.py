"""What operators are given: every query names a metric that exists, every alert is explained, every file is right."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest
from prometheus_client.core import Metric
from typer.testing import CliRunner

from verifier.cli import _register, app
from verifier.config import load_settings
from verifier.telemetry import Metrics

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
DASHBOARD = json.loads((DEPLOY / "grafana" / "verifier.json").read_text())
ALERTS = (DEPLOY / "prometheus" / "alerts.yml").read_text()
OPERATING = (ROOT / "docs" / "operating.md").read_text()
UNIT = (DEPLOY / "systemd" / "verifier.service").read_text()
CONTAINER = (DEPLOY / "container" / "Containerfile").read_text()

PROMTOOL = shutil.which("promtool")
SYSTEMD = shutil.which("systemd-analyze")

_register()


def metrics() -> dict[str, set[str]]:
    """Every series that a daemon has, with its labels."""
    made = Metrics()
    made.watch_queues(dict)
    made.watch_key_tables(dict)
    found: dict[str, set[str]] = {}
    for family in made.registry.collect():
        labels = _labels(made, family)
        suffixes = {"counter": ("_total",), "histogram": ("_bucket", "_sum", "_count")}.get(family.type, ("",))
        for suffix in suffixes:
            found[family.name + suffix] = labels | ({"le"} if suffix == "_bucket" else set())
    return found


def _labels(made: Metrics, family: Metric) -> set[str]:
    """Of a family that a collector of the daemon's makes, or of a metric of the library's."""
    own = getattr(family, "_labelnames", None)
    return set(
        own if own is not None else getattr(made.registry._names_to_collectors[family.name], "_labelnames", ())
    )


METRICS = metrics()
QUERIES = [
    (f"{panel['title']}: {target['refId']}", target["expr"])
    for panel in DASHBOARD["panels"]
    for target in panel.get("targets", ())
]
RULES = list(zip(re.findall(r"- alert: (\w+)", ALERTS), re.findall(r"expr: (.+)", ALERTS), strict=True))
# Words of PromQL, and the labels that Prometheus itself adds.
WORDS = {
    "sum",
    "by",
    "max",
    "rate",
    "increase",
    "histogram_quantile",
    "absent",
    "time",
    "and",
    "le",
    "instance",
    "job",
}


@pytest.mark.parametrize("query", [q for _, q in QUERIES + RULES], ids=[name for name, _ in QUERIES + RULES])
def test_a_query_names_what_exists(query):
    text = re.sub(r'"[^"]*"', '""', query)
    names = set(re.findall(r"\b(?:verifier|process)_\w+", text))
    assert names, "a query of nothing"
    assert names <= set(METRICS)
    labels = {label for name in names for label in METRICS[name]}
    rest = set(re.findall(r"(?<![\w$])[a-z_]+(?!\w)", re.sub(r"\[[^\]]*\]", "", text))) - names - WORDS
    assert rest <= labels, f"{sorted(rest - labels)} is no label of {sorted(names)}"


def test_the_dashboard_shows_every_metric():
    """What nobody looks at need not be counted. What `verifier_start_seconds` and the like say stands in a table."""
    shown = {name for _, query in QUERIES for name in re.findall(r"\b(?:verifier|process)_\w+", query)}
    families = {re.sub(r"_(bucket|sum|count)$", "", name) for name in METRICS}
    missing = {name for name in families if not any(s.startswith(name) for s in shown)}
    assert missing <= {"process_start_time_seconds"}


def test_the_dashboard_is_one_that_grafana_takes():
    ids = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(set(ids)) == len(ids)
    for panel in DASHBOARD["panels"]:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24
        for target in panel.get("targets", ()):
            assert target["datasource"]["uid"] == "${datasource}", "one variable chooses where the figures come from"
    spots = [(p["gridPos"]["x"], p["gridPos"]["y"]) for p in DASHBOARD["panels"]]
    assert len(set(spots)) == len(spots), "two panels in one place"


def test_every_alert_is_explained_and_no_other():
    assert re.findall(r"^### (Verifier\w+)$", OPERATING, re.MULTILINE) == [name for name, _ in RULES]
    for name, _ in RULES:
        text = OPERATING.split(f"### {name}\n")[1].split("\n### ")[0]
        assert len(text.split()) > 15, f"{name} says nothing of what to do"


@pytest.mark.skipif(PROMTOOL is None, reason="no promtool here: apt install prometheus")
def test_prometheus_takes_the_rules_and_every_query(tmp_path):
    rules = tmp_path / "dashboard.yml"
    records = "".join(
        f"      - record: check:{number}\n        expr: {json.dumps(_plain(query))}\n"
        for number, (_, query) in enumerate(QUERIES)
    )
    rules.write_text(f"groups:\n  - name: dashboard\n    rules:\n{records}")
    for file in (DEPLOY / "prometheus" / "alerts.yml", rules):
        result = subprocess.run([PROMTOOL, "check", "rules", file], capture_output=True, text=True, check=False)
        assert result.returncode == 0, result.stdout + result.stderr


def _plain(query: str) -> str:
    """A dashboard's query with its variables filled in."""
    return query.replace("$__rate_interval", "1m").replace("$instance", ".*")


def test_the_unit_sets_settings_that_exist_and_outwaits_the_drain(monkeypatch):
    for name, value in re.findall(r"^Environment='?(VERIFIER_\w+)=(.*?)'?$", UNIT, re.MULTILINE):
        monkeypatch.setenv(name, value.replace("%t", "/run").replace("%C", "/var/cache").replace("%S", "/var/lib"))
    settings = load_settings()
    assert settings.admin.listen == ("unix:/run/verifier/admin.sock",)
    assert settings.plugins.audit_file == Path("/var/lib/verifier/audit.jsonl")
    (stop_s,) = re.findall(r"^TimeoutStopSec=(\d+)$", UNIT, re.MULTILINE)
    assert int(stop_s) > settings.server.drain_s + settings.devices.drain_timeout_s
    for name in ("NoNewPrivileges=yes", "ProtectSystem=strict", "CapabilityBoundingSet=\n", "Type=notify", "User="):
        assert name in UNIT
    for line in re.findall(r"^Exec\w+=/opt/verifier/bin/verifier (.+)$", UNIT, re.MULTILINE):
        command, *options = shlex.split(line)
        shown = CliRunner(env={"COLUMNS": "200"}).invoke(app, [command, "--help"]).output
        assert all(option in shown for option in options if option.startswith("--"))


@pytest.mark.skipif(SYSTEMD is None, reason="no systemd-analyze here")
def test_systemd_takes_the_unit(tmp_path):
    """With the command in a place where there is one: it is installed elsewhere."""
    unit = tmp_path / "verifier.service"
    unit.write_text(UNIT.replace("/opt/verifier/bin/verifier", "/bin/true"))
    result = subprocess.run([SYSTEMD, "verify", unit], capture_output=True, text=True, check=False)
    complaints = [line for line in result.stderr.splitlines() if "verifier.service" in line]
    assert (result.returncode, complaints) == (0, [])


def test_the_container_has_what_it_copies_and_settings_that_exist(monkeypatch):
    lines = re.sub(r"\\\n\s*", "", CONTAINER)
    for sources in re.findall(r"^COPY (?!--from)(.+) \S+$", lines, re.MULTILINE):
        for source in sources.split():
            assert (ROOT / source).exists(), source
    (environment,) = re.findall(r"^ENV (.+)$", lines, re.MULTILINE)
    for assignment in shlex.split(environment):
        name, _, value = assignment.partition("=")
        if name.startswith("VERIFIER_"):
            monkeypatch.setenv(name, value)
    settings = load_settings()
    assert settings.server.listen == ("unix:/run/verifier/work.sock",)
    assert settings.log.format == "json"
    assert re.findall(r"^USER (.+)$", lines, re.MULTILINE) == ["10001:10001"]
    (probe,) = re.findall(r"^HEALTHCHECK .*CMD (\[.+\])$", lines, re.MULTILINE)
    assert CliRunner().invoke(app, [*json.loads(probe)[1:], "--help"]).exit_code == 0


def test_the_container_needs_nothing_that_its_context_leaves_out():
    kept = {
        line[1:]
        for line in (DEPLOY / "container" / "Containerfile.dockerignore").read_text().splitlines()
        if line.startswith("!")
    }
    copied = {
        source
        for sources in re.findall(r"^COPY (?!--from)(.+) \S+$", CONTAINER, re.MULTILINE)
        for source in sources.split()
    }
    assert copied == kept
