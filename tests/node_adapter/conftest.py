import contextlib
import os
from pathlib import Path

import _ecdsa
import pytest
from _both_clients import QUICK, Blocking, OnLoop
from _chain import real_verdicts

from node_adapter.chain import make_pool
from node_adapter.client import MockVerifier, VerifierClient

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


@pytest.fixture(scope="module")
def client():
    """A client whose ECDSA signatures OpenSSL and libsecp256k1 verify."""
    with MockVerifier(_ecdsa.verify) as daemon, VerifierClient(daemon.target) as client:
        yield client


@pytest.fixture(scope="module")
def verify():
    """What a node of the chain asks, answered by the plugin on this machine's CPU."""
    with contextlib.ExitStack() as stack:
        yield real_verdicts(stack)


@pytest.fixture(scope="module")
def pool(tmp_path_factory):
    """Sixty transactions of six accounts, of which 24 are spoilt."""
    return make_pool(3, 60, accounts=6, fault_share=0.4, folder=tmp_path_factory.mktemp("pool"), processes=1)
