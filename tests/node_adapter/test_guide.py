"""The Python of docs/integrating-a-node.md runs as it stands, with a mock in the daemon's place."""

import re
from pathlib import Path

import pytest
from _both_clients import by_first_byte

from node_adapter.client import MockVerifier, VerifierClient

GUIDE = (Path(__file__).parents[2] / "docs" / "integrating-a-node.md").read_text()
BLOCKS = re.findall(r"^```python\n(.*?)^```$", GUIDE, re.DOTALL | re.MULTILINE)


def test_every_block_runs(monkeypatch):
    with MockVerifier(by_first_byte) as daemon, MockVerifier() as other, VerifierClient(daemon.target) as local:
        rejected = []

        class Local:
            """Stands for the verifier on the node's own CPU, which compiles plugins."""

            def __init__(self, plugins):
                assert plugins == ["sm2"]

            def __enter__(self):
                return self

            def __exit__(self, *_):
                pass

            def __call__(self):
                return local

            client = __call__

        monkeypatch.setattr("node_adapter.LocalVerifier", Local)
        names = {
            "messages": [b"\1", b"\2", b"\1"],
            "signatures": [b"s"] * 3,
            "keys": bytes(64 * 3),
            "transactions": ["a", "b", "c"],
            "reject": lambda transaction, code: rejected.append((transaction, int(code))),
            "target": daemon.target,
            "ca": None,
            "key": None,
            "certificate": None,
        }
        for block in BLOCKS:
            block = block.replace("127.0.0.1:50051", daemon.target)
            block = re.sub(r"ipv4:[\d.:,]+", f"ipv4:{daemon.target},{other.target}", block)
            exec(compile(block, "integrating-a-node.md", "exec"), names)
        assert rejected == [("b", 2)]
        assert names["verdicts"].codes.tolist() == [1, 2, 1]
        for name in ("replicas", "secured"):
            names[name].close()


def test_the_guide_has_its_blocks():
    assert len(BLOCKS) == 6
    assert all(word in GUIDE for word in ("verify.py", "verifier.js", "deploy/kubernetes", "deploy/envoy"))


@pytest.mark.parametrize("path", sorted(set(re.findall(r"\b(?:docs|deploy|node_adapter|proto)/[\w./-]+", GUIDE))))
def test_what_the_guide_names_exists(path):
    assert (Path(__file__).parents[2] / path.rstrip(".")).exists()
