"""Who reads another process's answers: the thread that waits for one, for a moment, or else a thread for all of them.

A thread that sleeps takes longer to wake, in a virtual machine above all, than a signature takes to verify, and an
answer that the thread for all reads has two to wake: that one and the caller. So a caller that waits for the only
one due takes the turn to read, where there are cores enough, and looks for the answer without giving up its own.
Under load everything is the thread's: what looks holds the interpreter's lock every other microsecond, and answers
follow each other without anybody's help.

The thread sleeps in epoll, and a caller that takes the turn makes that deaf to messages: it wakes nobody when it
takes the turn, none of its messages wakes the thread, and a message that it leaves behind does once it hears again.
Deaf, too, it hears the process end: what that means is the thread's alone to find out.
"""

from __future__ import annotations

import os
import select
import threading
import time
from collections.abc import Callable
from typing import Any, Protocol

import msgspec

from verifier.channel import Channel
from verifier.cores import may_look

__all__ = ["Reader"]

_LOOKED_S = 2e-3  # for an answer; what takes longer is hardly later for a thread that has to wake

# One thread of a process at a time: several that look would keep the interpreter's lock from each other.
_looking = threading.Lock()


class Lose(Protocol):
    """The process is lost: "died" where it has ended, "sticky" with the problem where it cannot be read any more."""

    def __call__(self, kind: str, problem: str = "") -> None: ...


class Reader:
    """Reads until the other process ends. `take` gets each message in the thread that has read it, one at a time;
    `lose` is told of the end, and of what is no answer. Neither may wait for an answer."""

    def __init__(self, name: str, channel: Channel, take: Callable[[Any], None], lose: Lose) -> None:
        self._channel = channel
        self._take = take
        self._lose = lose
        self._turn = threading.Lock()  # whoever holds it reads
        self._over = False  # nobody reads any more; changed by who has the turn
        self._fd = channel.connection.fileno()
        self._looks = may_look()
        self._ready = select.poll()  # asked by who has the turn
        self._ready.register(self._fd, select.POLLIN)
        self._messages = select.epoll()  # where the thread sleeps
        self._messages.register(self._fd, select.EPOLLIN)
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Starts the thread."""
        self._thread.start()

    def close(self) -> None:
        """Waits for the thread, which ends behind the process, where it was started."""
        if self._thread.ident is not None:
            self._thread.join()
        self._messages.close()

    def read_while(self, wanted: Callable[[], bool], limit_s: float | None, idle: Callable[[], bool]) -> None:
        """Reads in the calling thread while it is `wanted` and the thread `idle`, for a moment and no longer than
        `limit_s`.

        Returns at once where another thread has the turn, or there are few cores.
        """
        if not self._looks or not wanted() or not _looking.acquire(blocking=False):
            return
        try:
            if self._turn.acquire(blocking=False):
                try:
                    self._read_instead(wanted, idle, _LOOKED_S if limit_s is None else min(limit_s, _LOOKED_S))
                finally:
                    self._turn.release()
        finally:
            _looking.release()

    def _read_instead(self, wanted: Callable[[], bool], idle: Callable[[], bool], limit_s: float) -> None:
        if self._over:
            return
        self._messages.modify(self._fd, 0)
        try:
            end = time.perf_counter() + limit_s
            while wanted() and idle() and not self._over and time.perf_counter() < end:
                if self._ready.poll(0):
                    self._read()
                else:
                    os.sched_yield()  # to the worker, for instance, where the kernel has put both on one core
        except (EOFError, OSError):
            pass  # the thread finds it, too
        finally:
            self._messages.modify(self._fd, select.EPOLLIN)

    def _run(self) -> None:
        while not self._over:
            if self._looks:  # else it sleeps in `_read`: nobody ever takes its turn
                self._messages.poll()
            with self._turn:
                if self._over or (self._looks and not self._ready.poll(0)):  # a caller has read it
                    continue
                try:
                    self._read()
                except (EOFError, OSError):
                    self._over = True
                    self._lose("died")

    def _read(self) -> None:
        """One answer. Raises EOFError or OSError where the process has ended."""
        try:
            answer = self._channel.receive()
        except (EOFError, OSError):
            raise
        except BaseException as error:
            self._give_up(f"its process sent what is no answer: {error}")
            if isinstance(error, msgspec.DecodeError):
                return
            raise
        try:
            self._take(answer)
        except BaseException as error:
            self._give_up(f"an answer was not taken: {error!r}")
            raise

    def _give_up(self, problem: str) -> None:
        """Half a message may be left, or a batch that nobody answers: the process is replaced."""
        self._over = True
        self._lose("sticky", problem)
