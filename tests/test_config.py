"""Configuration: file < environment < flags, no misspelt name is ever ignored, and everything is documented."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from verifier.api import Listener, Tls
from verifier.config import Settings, load_settings, parse_overrides, show
from verifier.errors import ConfigError
from verifier.telemetry import Metrics

OPERATING = (Path(__file__).parents[1] / "docs" / "operating.md").read_text()


@pytest.fixture
def file(tmp_path):
    def write(text: str):
        path = tmp_path / "verifier.toml"
        path.write_text(text)
        return path

    return write


def test_each_source_wins_over_the_one_before(file, monkeypatch):
    path = file("[server]\nmax_items = 5\nmax_calls = 6\nmax_streams = 7\n")
    monkeypatch.setenv("VERIFIER_SERVER__MAX_CALLS", "60")
    monkeypatch.setenv("VERIFIER_SERVER__MAX_STREAMS", "70")
    server = load_settings(path, {"server": {"max_streams": 700}}).server
    assert (server.max_items, server.max_calls, server.max_streams, server.stream_in_flight) == (5, 60, 700, 32)


def test_what_is_shown_gives_the_same_settings(file):
    settings = load_settings(None, {"plugins": {"folders": ["/a b", "/c"]}, "log": {"format": "json"}})
    assert load_settings(file(show(settings))) == settings


def test_a_secret_is_used_and_never_shown(file, monkeypatch):
    monkeypatch.setenv("VERIFIER_TRACING__HEADERS", "authorization=hush")
    settings = load_settings()
    assert settings.tracing.headers.get_secret_value() == "authorization=hush"
    assert "hush" not in show(settings) + repr(settings) + str(settings) + repr(settings.model_dump())
    monkeypatch.delenv("VERIFIER_TRACING__HEADERS")
    assert load_settings(file(show(settings))).tracing.headers.get_secret_value() == "", "the mask is no value"


def test_lists_in_the_environment_are_json(monkeypatch):
    monkeypatch.setenv("VERIFIER_SERVER__LISTEN", '["unix:/x", "127.0.0.1:1"]')
    assert load_settings().server.listen == ("unix:/x", "127.0.0.1:1")
    monkeypatch.setenv("VERIFIER_SERVER__LISTEN", "unix:/x")
    with pytest.raises(ConfigError, match="lists are written as JSON"):
        load_settings()


def test_names_of_other_tools_are_left_alone(monkeypatch):
    monkeypatch.setenv("VERIFIER_SHARED", "/x")
    load_settings()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[server]\nlisten_on = 1", "server.listen_on: there is no such setting"),
        ("[serve]\n", "serve: there is no such setting"),
        ("max_items = 1", "max_items: there is no such setting"),
        ("[server]\nmax_items = 0", "server.max_items: Input should be greater"),
        ("[server", "not TOML"),
        ("[server]\ntls_key_file = 'k'", "belong together"),
        ("[server]\ntls_client_ca_file = 'k'", "needs server.tls_certificate_file"),
        ("[server]\nmax_batch_bytes = 60000000", "three quarters of devices.slot_bytes, which are 50331648"),
        ("[server]\nmax_message_bytes = 100000", "max_message_bytes must be"),
        ("[scheduling]\nqueue_items = 10", "room for one largest batch"),
        ("[log]\nlevel = 'loud'", "log.level"),
        ("[roles]\nverify = ['node-1']", "roles.verify.0: 'node-1': what is needed is *, or CN="),
        ("[server]\nsocket_mode = '888'", "server.socket_mode: '888' is no mode as chmod takes it"),
    ],
)
def test_mistakes_in_a_file(file, text, words):
    with pytest.raises(ConfigError) as caught:
        load_settings(file(text))
    assert words in str(caught.value)


def test_mistakes_elsewhere(tmp_path, monkeypatch):
    with pytest.raises(ConfigError, match="No such file"):
        load_settings(tmp_path / "none.toml")
    with pytest.raises(ConfigError, match=r"section\.name=value"):
        parse_overrides(["server.listen"])
    with pytest.raises(ConfigError, match=r"server\.lissen: there is no such setting"):
        load_settings(None, parse_overrides(["server.lissen=1"]))
    with pytest.raises(ConfigError, match=r"server\.listen: a list is needed"):
        load_settings(None, parse_overrides(["server.listen=127.0.0.1:1"]))
    monkeypatch.setenv("VERIFIER_SERVER__LISSEN", "1")
    with pytest.raises(ConfigError, match=r"server\.lissen: there is no such setting"):
        load_settings()
    monkeypatch.delenv("VERIFIER_SERVER__LISSEN")
    monkeypatch.setenv("VERIFIER_SERVR__LISTEN", "1")
    with pytest.raises(ConfigError, match="there is no section servr"):
        load_settings()


@pytest.mark.parametrize("address", ["0.0.0.0:1", "[::]:1", "10.0.0.1:1", "example.com:1"])
def test_an_open_listener_needs_tls_or_an_explicit_word(address, tmp_path):
    with pytest.raises(ConfigError, match=r"can be reached from other hosts.*insecure = true"):
        Listener("server.listen", (address,)).check()
    Listener("server.listen", (address,), insecure=True).check()
    Listener("server.listen", (address,), tls=Tls(tmp_path / "c", tmp_path / "k")).check()


@pytest.mark.parametrize("address", ["127.0.0.1:1", "127.9.9.9:1", "[::1]:1", "localhost:1", "unix:/tmp/x"])
def test_private_listeners_need_none(address):
    Listener("server.listen", (address,)).check()


@pytest.mark.parametrize("address", ["127.0.0.1", "127.0.0.1:http", "127.0.0.1:65536", ""])
def test_addresses_that_are_none(address):
    with pytest.raises(ConfigError, match="neither host:port nor unix:/path"):
        Listener("server.listen", (address,)).check()


def _documented(section: str) -> set[str]:
    """Names in the first column of the tables under a section's heading, and section.name anywhere."""
    names = set(re.findall(rf"\b{section}\.([a-z_]+)", OPERATING))
    for part in OPERATING.split("\n### ")[1:]:
        if section in part.splitlines()[0].replace(":", ",").split(","):
            cells = re.findall(r"^\| ([^|]+) \|", part, re.MULTILINE)
            names |= {name.strip() for cell in cells for name in cell.split(",")}
    return names


@pytest.mark.parametrize("section", Settings.model_fields)
def test_every_setting_is_documented(section):
    settings = set(type(getattr(Settings(), section)).model_fields)
    assert settings <= _documented(section)


def test_every_metric_is_documented():
    metrics = Metrics()
    metrics.watch_queues(dict)
    metrics.watch_key_tables(dict)
    names = {family.name + ("_total" if family.type == "counter" else "") for family in metrics.registry.collect()}
    text = OPERATING.split("## Metrics")[1].split("## Alerts")[0]
    assert names == set(re.findall(r"`?((?:verifier|process)_[a-z_]+)(?=[`,]? ?[,|`])", text))


def test_every_mistake_of_a_file_is_told(tmp_path):
    path = tmp_path / "verifier.toml"
    path.write_text('[server]\nmax_items = "lots"\nlissen = 1\n[devices]\nslots = 0\n')
    with pytest.raises(ConfigError) as caught:
        load_settings(path)
    assert [line.partition(":")[0] for line in sorted(str(caught.value).splitlines())] == [
        "devices.slots",
        "server.lissen",
        "server.max_items",
    ]
