"""The newest operation wins: whoever finishes behind a newer one finds out."""

from __future__ import annotations

import threading
from collections.abc import Hashable

from verifier.errors import ConflictError

__all__ = ["Ticket", "Tickets"]


class Ticket:
    """An operation's place among all that touch the same things."""

    def __init__(self, tickets: Tickets, number: int, scopes: tuple[Hashable, ...], what: str) -> None:
        self._tickets = tickets
        self.number = number
        self.scopes = scopes
        self.what = what

    def check(self) -> None:
        """Raises ConflictError where a newer operation was accepted in the meantime."""
        newer = self._tickets.newer(self)
        if newer is not None:
            raise ConflictError(
                f"{self.what} (operation {self.number}) is given up: a newer one was accepted: {newer}"
            )


class Tickets:
    """Hands out rising numbers and remembers the newest of each scope."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._number = 0
        self._newest: dict[Hashable, Ticket] = {}

    def take(self, what: str, *scopes: Hashable) -> Ticket:
        """The newest ticket of all `scopes`; `what` names the operation in the errors of older ones."""
        with self._lock:
            self._number += 1
            ticket = Ticket(self, self._number, scopes, what)
            for scope in scopes:
                self._newest[scope] = ticket
            return ticket

    def newer(self, ticket: Ticket) -> str | None:
        """What was accepted after `ticket` in one of its scopes, or None."""
        with self._lock:
            for scope in ticket.scopes:
                newest = self._newest[scope]
                if newest.number > ticket.number:
                    return f"{newest.what} (operation {newest.number})"
        return None
