"""The guide's Node.js example against a daemon in another process."""

from __future__ import annotations

import json
import shutil
import subprocess

import pytest
from _daemon_process import ROOT, DaemonProcess

from node_adapter.chain import make_pool
from verifier.model import Code

EXAMPLE = ROOT / "docs" / "examples" / "nodejs"


def test_the_example_gives_the_verdicts(tmp_path):
    node = shutil.which("node")
    if node is None:
        pytest.skip("no node: install Node.js 18 or newer")
    if not (EXAMPLE / "node_modules").is_dir():
        pytest.skip(f"no packages: run npm ci in {EXAMPLE.relative_to(ROOT)}")
    pool = make_pool(31, 30, accounts=3, fault_share=0.5, folder=tmp_path, processes=1)
    transactions = [entry.transaction for entry in pool.entries]
    items = [
        {"message": tx.body().hex(), "signature": tx.signature.hex(), "key": tx.key.hex()} for tx in transactions
    ]
    daemon = DaemonProcess(tmp_path, ["sm2"], cache=None)
    try:
        result = subprocess.run(
            [node, "verify.js", daemon.address],
            cwd=EXAMPLE,
            input=json.dumps(items),
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
    finally:
        daemon.stop()
    assert result.returncode == 0, result.stderr
    codes = {code.name for code in Code}
    assert result.stdout.split() == ["invalid" if entry.reason in codes else "valid" for entry in pool.entries]
    assert "served by sm2@1.0.0#" in result.stderr
