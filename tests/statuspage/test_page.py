"""The page of a daemon with traffic, in a browser without a screen.

Chromium is looked for, or named by CHROMIUM; where there is none the tests are skipped.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import threading
import urllib.request
from html import unescape
from pathlib import Path

import grpc
import numpy as np
import pytest
from _daemon_process import PARITY, digests, parity_request
from _waiting import until

from verifier.config import load_settings
from verifier.daemon import Daemon
from verifier.statuspage import StatusServer
from verifier.v1 import verifier_pb2_grpc as rpc

CHROMIUM = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
OPTIONS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--hide-scrollbars"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage"),
)

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no chromium here: apt install chromium")


def browse(tmp_path: Path, url: str, *options: str) -> str:
    """What the page has become after four of its own seconds."""
    command = [CHROMIUM, *OPTIONS, f"--user-data-dir={tmp_path}/profile", "--virtual-time-budget=4000", *options]
    return subprocess.run([*command, url], capture_output=True, text=True, timeout=120, check=True).stdout


def text_of(page: str, name: str) -> str:
    """The text of the element with an id."""
    (found,) = re.findall(rf'<(\w+)[^>]*\bid="{name}"[^>]*>(.*?)</\1>', page, re.DOTALL)
    return unescape(re.sub(r"<[^>]+>", " ", found[1])).strip()


def history(port: int) -> list[float | None]:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/status.json", timeout=60) as answer:
        return json.load(answer)["history"]["items_per_s"]


@pytest.fixture(scope="module")
def daemon(tmp_path_factory):
    folder = tmp_path_factory.mktemp("page")
    settings = load_settings(
        overrides={
            "server": {"listen": ["127.0.0.1:0"]},
            "health": {"listen": []},
            "metrics": {"listen": ""},
            "status": {"listen": "127.0.0.1:0"},
            "plugins": {"load": [str(PARITY)], "trust": "any", "cache_folder": str(folder / "cache")},
            "devices": {"use": ["cpu"]},
        }
    )
    stop = threading.Event()

    def load(address: str) -> None:
        rng = np.random.default_rng(8)
        with grpc.insecure_channel(address) as channel:
            stub = rpc.VerifierStub(channel)
            while not stop.wait(0.05):
                stub.Verify(parity_request(digests(int(rng.integers(50, 500)), seed=8)), timeout=60)

    with Daemon(settings) as running:
        thread = threading.Thread(target=load, args=(running.addresses[0],))
        thread.start()
        until(lambda: sum(map(bool, history(running.status_port))) > 1, "the history has readings")
        yield running
        stop.set()
        thread.join()


def test_the_page_shows_the_daemon(daemon, tmp_path):
    page = browse(tmp_path, f"http://127.0.0.1:{daemon.status_port}/", "--dump-dom")
    assert text_of(page, "state") == "serving"
    assert text_of(page, "about").startswith("0.1.0 · up ")
    assert daemon.addresses[0] in text_of(page, "about")
    assert float(text_of(page, "items").split()[0].replace(",", "")) > 0
    assert text_of(page, "p99").endswith(("ms", "µs", "s"))
    assert re.match(r"cpu\s+up\b", text_of(page, "devices"))
    assert re.match(r"parity@1\.0\.0#1\s+active\s+verify/PARITY, digest/PARITY\s+cpu\b", text_of(page, "plugins"))
    assert re.search(r"valid\s+[1-9][\d,]*\s+invalid\s+[1-9]", text_of(page, "legend"))
    assert re.search(r'id="items-line".*?<path class="under" d="M[^"]+"></path><path d="M[^"]+L', page, re.DOTALL)
    assert re.search(r"<title>.* items/s · verifier</title>", page)


def test_what_a_plugin_is_called_is_text_and_never_markup(tmp_path):
    name = "<img src=x onerror=alert(1)>"
    plugin = {"label": name, "state": "failed", "reason": "<b>why</b>", "operations": [name], "devices": []}
    plugin |= {"missing_devices": [], "items_per_s": None, "changed_unix": 0}
    status = {
        "version": "0", "at_unix": 9.0, "state": "not serving", "listen": [name], "up_s": 1.0, "verdicts": {},
        "rates_per_s": {"items": 0, "calls": 0, "refused": 0}, "queue": {"items": 0, "bytes": 0, "calls": 0},
        "latency_s": {"p50": None, "p99": None, "queue_p50": None, "device_p50": None}, "devices": [],
        "history": {"items_per_s": [], "p99_s": [], "queue_items": []}, "plugins": [plugin],
    }  # fmt: skip
    server = StatusServer(("127.0.0.1", 0), lambda: status, None)
    server.start()
    try:
        page = browse(tmp_path, f"http://127.0.0.1:{server.port}/", "--dump-dom")
    finally:
        server.close()
    assert name in text_of(page, "plugins").replace("  ", " ") or "&lt;img" in page
    assert "<img" not in page
    assert "<b>why" not in page
    assert text_of(page, "state") == "not serving"


def test_a_daemon_that_went_away_is_said_to_have(tmp_path):
    """The page stays, dimmed, and says so; the figures are not taken for news."""

    def gone():
        raise OSError("the daemon went away")

    server = StatusServer(("127.0.0.1", 0), gone, None)
    server.start()
    try:
        page = browse(tmp_path, f"http://127.0.0.1:{server.port}/", "--dump-dom")
    finally:
        server.close()
    assert text_of(page, "state") == "no answer from the daemon"
    assert re.search(r'<body class="stale">', page)


@pytest.mark.parametrize(("width", "dark"), [(1280, False), (1280, True), (500, False)])
def test_it_can_be_painted(daemon, tmp_path, width, dark):
    file = tmp_path / "page.png"
    scheme = ("--blink-settings=preferredColorScheme=0",) if dark else ()
    url = f"http://127.0.0.1:{daemon.status_port}/"
    browse(tmp_path, url, f"--window-size={width},1100", f"--screenshot={file}", *scheme)
    data = file.read_bytes()
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    assert int.from_bytes(data[16:20], "big") == width
    assert len(data) > 20_000, "an empty page is smaller"
