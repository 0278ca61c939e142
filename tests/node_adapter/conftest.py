import os
from pathlib import Path

import pytest
from _both_clients import QUICK, Blocking, OnLoop

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def shared():
    """The folder with what real systems made; the test is skipped where it is absent."""
    path = Path(os.environ.get("VERIFIER_SHARED", ROOT.parent / "shared"))
    if not (path / "real").is_dir():
        pytest.skip("no real data: set VERIFIER_SHARED to the folder that has real/")
    return path


@pytest.fixture(params=[Blocking, OnLoop])
def connect(request):
    made = []

    def make(target, **options):
        made.append(request.param(target, retry=QUICK, **options))
        return made[-1]

    yield make
    for client in made:
        client.close()
