"""An urgent batch is done before those that were given to the device earlier."""

from __future__ import annotations

import threading
import time

import numpy as np
from _toy import VERIFY, check_verify, fixed_batch
from _waiting import until

from verifier.drivers.fake import Fault

RESULT_S = 60.0
SMALL = fixed_batch(np.arange(40, dtype=np.uint8).reshape(20, 2))


def holding(make_worker, manifest, image, held, **options):
    """A worker of a device, and its first batch, which is under way and not done while the file is there."""
    held.touch()
    begun = held.with_name("begun")
    # Behind the load's own.
    faults = [Fault("launch parity_sum", after=1, times=1, held=str(held), once=str(begun))]
    worker = make_worker("fake:0", driver={"faults": faults}, **options)
    worker.start()
    worker.load(1, manifest, image)
    first = run(worker)
    until(begun.exists)
    return worker, first


def run(worker, batch=SMALL, **how):
    return worker.run(1, VERIFY, batch.key, [batch], **how)


def test_it_overtakes_what_is_in_flight(make_worker, manifest, image, tmp_path):
    worker, first = holding(make_worker, manifest, image, tmp_path / "held")
    usual = [first, run(worker)]
    for _ in range(3):
        check_verify(SMALL, run(worker, urgent=True).result(RESULT_S)[0])
    assert not any(future.done() for future in usual)
    (tmp_path / "held").unlink()
    for future in usual:
        check_verify(SMALL, future.result(RESULT_S)[0])


def test_its_answer_waits_for_nobody_who_is_busy_with_others(make_worker, manifest, image, tmp_path):
    worker, first = holding(make_worker, manifest, image, tmp_path / "held")
    began, go_on = threading.Event(), threading.Event()

    def busy(_) -> None:
        began.set()
        go_on.wait(RESULT_S)

    first.add_done_callback(busy)
    (tmp_path / "held").unlink()
    assert began.wait(RESULT_S)  # the thread that reads is in `busy`
    behind = run(worker)
    check_verify(SMALL, run(worker, urgent=True).result(RESULT_S)[0])
    assert not behind.done()
    go_on.set()
    check_verify(SMALL, behind.result(RESULT_S)[0])


def test_urgent_ones_do_not_hide_one_that_hangs(make_worker, manifest, image, tmp_path):
    worker, hangs = holding(make_worker, manifest, image, tmp_path / "held", batch_limit_s=0.5, item_limit_s=0.0)
    end = time.monotonic() + RESULT_S
    while not hangs.done() and time.monotonic() < end:
        run(worker, urgent=True).exception(RESULT_S)
    assert "longer than its limit" in str(hangs.exception(0))
    (tmp_path / "held").unlink()


def test_on_every_device_the_verdicts_are_the_same(worker):
    large = fixed_batch(np.arange(60_000, dtype=np.uint32).view(np.uint8).reshape(-1, 8))
    futures = [(batch, run(worker, batch, urgent=batch is SMALL)) for batch in (large, SMALL, large, SMALL)]
    for batch, future in futures:
        check_verify(batch, future.result(RESULT_S)[0])
