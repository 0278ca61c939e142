"""Nodes as processes, and the experiment over them."""

import asyncio
import json
import os
import time
from types import SimpleNamespace

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

from node_adapter.chain import _call_cost, _engines, _meter, make_pool
from node_adapter.chain._engines import Known, _Timed
from node_adapter.chain._messages import Blocks, Status, encode
from node_adapter.chain._process import SocketHost, _NodeHost
from node_adapter.chain._questions import Point, Question
from node_adapter.chain._transaction import TRANSACTION_SCHEME
from node_adapter.chain.experiment import Measured, cpu_s, library_cost_s, measure, predicted_gain
from node_adapter.client import Algorithm
from node_adapter.errors import ChainError, DeadlineError
from verifier.bench.records import append_records, read_records
from verifier.cli import _chain_bench as bench
from verifier.cli import chain as cli
from verifier.model import Code


class Ears:
    def __init__(self):
        self.heard = []

    def receive(self, message, sender):
        self.heard.append((sender, message))


async def until(condition):
    while not condition():
        await asyncio.sleep(0.005)


def test_messages_go_over_sockets_in_order(tmp_path):
    async def run():
        hosts = [SocketHost(tmp_path, number) for number in range(2)]
        ears = [Ears(), Ears()]
        for host, ear in zip(hosts, ears, strict=True):
            await host.listen(ear)
        for host in hosts:
            await host.connect(2)
        for height in range(50):
            hosts[0].send(1, Status(0, height, True))
        hosts[1].send(0, Blocks(()))
        hosts[1].send(7, Blocks(()))
        await until(lambda: len(ears[1].heard) == 50 and ears[0].heard)
        assert ears[0].heard == [(1, Blocks(()))]
        assert [message.height for sender, message in ears[1].heard if sender == 0] == list(range(50))
        for host in hosts:
            host.close()

    asyncio.run(asyncio.wait_for(run(), 30))


def test_a_node_whose_verifier_refuses_says_so(tmp_path):
    class Refuses:
        async def verify(self, question):
            raise DeadlineError("no verdict in time")

    async def run():
        host, answers = _NodeHost(tmp_path, 0, Refuses()), []
        host.verify(None, answers.append)
        await until(lambda: host.refused)
        assert host.refused == "no verdict in time"
        assert answers == []

    asyncio.run(asyncio.wait_for(run(), 30))


@pytest.mark.parametrize("garbage", [b"\0\0\0\5hello", b"\xff\xff\xff\xff"])
def test_who_sends_no_messages_is_cut_off(tmp_path, garbage):
    async def run():
        host, ear = SocketHost(tmp_path, 0), Ears()
        await host.listen(ear)
        reader, writer = await asyncio.open_unix_connection(tmp_path / "0.sock")
        good = encode(Status(0, 1, True))
        writer.write((3).to_bytes(4, "big") + len(good).to_bytes(4, "big") + good + garbage)
        assert await reader.read() == b"", "the connection ends"
        assert ear.heard == [(3, Status(0, 1, True))]
        writer.close()
        host.close()

    asyncio.run(asyncio.wait_for(run(), 30))


def test_a_chain_of_processes(tmp_path):
    pool = make_pool(6, 300, algorithm=Algorithm.ECDSA_P256, accounts=20, fault_share=0, folder=tmp_path)
    measured = measure(pool, "library", block_transactions=50, window=100, limit_s=120)
    assert measured.transactions == 300 - 300 // 5 - 300 // 20
    assert 0 < measured.p50_s <= measured.p99_s < measured.seconds + 60
    assert measured.node_cpu_s > measured.verifier_cpu_s > 0
    assert measured.daemon_cpu_s == 0
    assert 1 <= measured.call_items <= 300
    assert measured.rate == measured.transactions / measured.seconds


def test_a_chain_that_stands_still_is_no_measurement(tmp_path):
    """Nobody listens at the daemon's address: nothing is decided, so nothing is on the chain."""
    pool = make_pool(6, 100, algorithm=Algorithm.ECDSA_P256, accounts=20, fault_share=0, folder=tmp_path)
    with pytest.raises(ChainError, match=r"0 transactions are on the chain after .* s: too few to measure"):
        measure(pool, "127.0.0.1:1", limit_s=1)


def test_processor_time_of_a_tree():
    before = cpu_s(os.getpid())
    start = time.process_time()
    while time.process_time() - start < 0.1:
        pass
    assert cpu_s(os.getpid()) - before >= 0.05
    assert cpu_s(None) == 0
    assert cpu_s(1 << 30) == 0


def test_the_time_of_a_call_is_that_of_its_steps(monkeypatch):
    """What others do while it waits is not its own; what it is given, and what it raises, passes through."""
    now = 0.0
    monkeypatch.setattr(_engines, "time", SimpleNamespace(thread_time=lambda: now, perf_counter=time.perf_counter))

    def work(seconds):
        nonlocal now
        now += seconds

    async def call():
        work(1)
        asyncio.get_running_loop().call_soon(work, 100)  # somebody else's, while this one waits
        try:
            await asyncio.sleep(0.01)
        except asyncio.CancelledError:
            work(2)
            return "cancelled"
        work(4)
        return "done"

    async def failing():
        await asyncio.sleep(0)
        work(8)
        raise ValueError("of its own")

    async def awaited(timed):
        return await timed

    async def run():
        engine = Known()
        assert await awaited(_Timed(call(), engine)) == "done"
        assert (now, engine.cpu_s) == (105, 5)
        task = asyncio.create_task(awaited(_Timed(call(), engine)))
        while now < 200:
            await asyncio.sleep(0)
        task.cancel()
        assert await task == "cancelled"
        assert engine.cpu_s == 5 + 3
        with pytest.raises(ValueError, match="of its own"):
            await _Timed(failing(), engine)
        assert engine.cpu_s == 5 + 3 + 8

    asyncio.run(asyncio.wait_for(run(), 30))


def test_calls_cost_all_that_their_thread_does_for_them(monkeypatch):
    """An engine counts 2 s of a call, and 3 s more go by on its thread."""
    thread = 0.0
    clocks = {"thread_time": lambda: thread, "perf_counter": time.perf_counter}
    monkeypatch.setattr(_call_cost, "time", SimpleNamespace(**clocks))
    question = Question(Point.RECEIPT, TRANSACTION_SCHEME, [b"", b""], [b"", b""], [b"", b""])

    class Host:
        engine, left = Known(), 1

        def verify(self, question, answer):
            nonlocal thread
            self.engine.cpu_s += 2
            thread += 5
            codes = np.full(len(question), Code.UNDECIDED if self.left else Code.VALID, np.uint8)
            self.left = max(0, self.left - 1)
            asyncio.get_running_loop().call_soon(answer, codes)

        def call_later(self, delay_s, callback):
            return asyncio.get_running_loop().call_soon(callback)

    async def run():
        assert await _call_cost.thread_over_steps(Host(), Host.engine, question) == 5 / 2

    asyncio.run(asyncio.wait_for(run(), 30))


def test_where_nothing_is_counted_nothing_is_added(tmp_path):
    async def run():
        host = _NodeHost(tmp_path, 0, Known())
        assert await host.thread_over_steps() == 1, "nothing was asked"
        answers = []
        host.verify(Question(Point.RECEIPT, TRANSACTION_SCHEME, [b""], [b""], [b""]), answers.append)
        await until(lambda: answers)
        assert await host.thread_over_steps() >= 1
        host.close()

    asyncio.run(asyncio.wait_for(run(), 30))


def test_a_meter_sums_what_it_encloses(monkeypatch):
    now = iter([1.0, 3.0, 10.0, 14.0])
    monkeypatch.setattr(_meter, "time", SimpleNamespace(thread_time=lambda: next(now)))
    meter = _meter.Meter()
    with meter:
        pass
    with pytest.raises(ValueError, match="inside"), meter:
        raise ValueError("inside")
    assert meter.seconds == 2 + 4


def test_the_library_costs_something(tmp_path):
    pool = make_pool(6, 100, algorithm=Algorithm.ECDSA_P256, accounts=20, fault_share=0, folder=tmp_path)
    assert 1e-6 < library_cost_s(pool, 0.02) < 0.1


def test_amdahls_law():
    # Half of the time is verification; twice as fast: 3/4 of the time are left.
    assert predicted_gain(1.0, 2.0, 2.0) == pytest.approx(4 / 3)
    assert predicted_gain(1.0, 2.0, 1e12) == pytest.approx(2.0)
    assert predicted_gain(1.0, 0.9, 2.0) == pytest.approx(0.9)


def run_of(rate, node_us):
    return Measured(1000, 1000 / rate, 0.1, 0.2, node_us / 1e6, 0.0, 1e-4, 1e-5, 0.05, 40.0)


@pytest.fixture
def results():
    known, library, middleware, enrolled = bench.cases_on(["cpu"])
    assert (str(enrolled), enrolled.name) == ("middleware on cpu, keys enrolled", "middleware-cpu-enrolled")
    runs = {
        (known, True): [run_of(rate, 200) for rate in (1900, 2000, 2100)],
        (library, True): [run_of(rate, 600) for rate in (900, 1000, 1100)],
        (middleware, True): [run_of(rate, 300) for rate in (1400, 1500, 1800)],
    }
    costs = {known: 0.0, library: 100e-6, middleware: 50e-6}
    return [bench._result(case, early, runs, costs) for case, early in runs]


def test_results_say_gains_and_shares(results):
    known, library, middleware = results
    assert (known.share, library.share, middleware.share) == pytest.approx((0, 2 / 3, 1 / 3))
    assert middleware.gain == pytest.approx(1.5)
    assert middleware.cpu_gain == pytest.approx(710 / 410)
    assert middleware.predicted_gain == pytest.approx(710 / (310 + 400 / 2))
    assert library.predicted_gain == 0
    assert (middleware.median.rate, middleware.spread) == pytest.approx((1500, 400 / 1500))


def test_records_are_written_and_read(results, tmp_path):
    pool = make_pool(6, 10, algorithm=Algorithm.ECDSA_P256, accounts=4, fault_share=0, folder=tmp_path)
    path = tmp_path / "out" / "chain.jsonl"
    append_records(path, bench.records_of(results, pool, 4, 200, 1000, 0.02))
    records = read_records(path)
    assert [record.case for record in records] == [
        "chain-ecdsa-p256-known-on-receipt",
        "chain-ecdsa-p256-library-on-receipt",
        "chain-ecdsa-p256-middleware-cpu-on-receipt",
    ]
    assert records[2].rate == pytest.approx(1500)
    assert (records[2].unit, records[2].runs, records[2].batch) == ("transactions/s", 3, 200)
    assert records[2].settings["amdahl_gain"] == pytest.approx(1.392)
    assert json.loads(path.read_text().splitlines()[0])["settings"]["validators"] == 4


@pytest.mark.parametrize("suffix", ["svg", "png"])
def test_plots(results, tmp_path, suffix):
    pytest.importorskip("matplotlib")
    bench.draw(results, tmp_path / f"figures/chain.{suffix}")
    data = (tmp_path / f"figures/chain.{suffix}").read_bytes()
    assert len(data) > 5000
    assert (b"<svg" in data[:1000]) == (suffix == "svg")


def app(*arguments):
    commands = typer.Typer()
    cli.register(commands)
    return CliRunner().invoke(commands, ["chain", *arguments], env={"COLUMNS": "200"})


def test_a_device_that_is_not_there():
    result = app("bench", "--device", "cuda:77")
    assert result.exit_code == 2
    assert "there is no cuda:77 here; there are" in result.output


def test_a_window_in_which_a_run_has_no_room():
    """All would be sent at once and go on chain at once."""
    result = app("bench", "--transactions", "500", "--window", "200")
    assert result.exit_code == 2
    assert "a quarter of --transactions at most, 125 here" in result.output


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_bench(tmp_path, monkeypatch):
    monkeypatch.setenv("VERIFIER_PLUGINS__TRUST", "any")
    out, plot = tmp_path / "chain.jsonl", tmp_path / "chain.svg"
    result = app(
        "bench", "--transactions", "500", "--repeats", "1", "--device", "cpu", "--out", str(out), "--plot", str(plot)
    )
    assert result.exit_code == 0, result.output
    assert len(read_records(out)) == 8
    assert plot.exists()
    assert "middleware on cpu" in result.output


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_storm():
    result = app("storm", "--seeds", "5")
    assert result.exit_code == 0, result.output
    assert "5 of 5 seeds kept every promise" in result.output
