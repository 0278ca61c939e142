"""Every call passes here first: has its caller the role, and does it keep to its rate.

One object for every server of a process, and one for each front-end process: it needs the settings alone.

    interceptors = [CallInterceptor(access)]
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

import grpc
import structlog

from verifier.api._rates import Rate, Rates
from verifier.api._roles import Peer, Role, Roles, allowed_roles, peer_of, role_of_method
from verifier.config import Settings
from verifier.errors import CapacityError, DeniedError

__all__ = ["Access", "Denial"]

_log = structlog.get_logger(__name__)

_TELL_AGAIN_S = 60.0
_MOST_TOLD = 4096


@dataclass(frozen=True, slots=True)
class Denial:
    """A call that was refused for want of a role. `again`: how many like it came since the last one was told."""

    caller: str
    method: str
    role: Role
    again: int = 0


class Access:
    """`on_denied` is told of refused calls, of each caller and method once a minute: an audit is no place to flood.

    `count(role, reason)` counts every refusal, reason "role" or "rate".
    """

    def __init__(
        self,
        roles: Roles,
        rates: Rates,
        *,
        on_denied: Callable[[Denial], None] | None = None,
        count: Callable[[str, str], None] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._roles = roles
        self._rates = rates
        self._on_denied = on_denied
        self._count = count
        self._clock = clock
        self._lock = threading.Lock()
        self._told: OrderedDict[tuple[str, str], tuple[float, int]] = OrderedDict()

    @classmethod
    def from_settings(
        cls,
        settings: Settings,
        *,
        admin_socket: bool = False,
        on_denied: Callable[[Denial], None] | None = None,
        count: Callable[[str, str], None] | None = None,
    ) -> Access:
        """What the settings say. `admin_socket`: of a listener whose mode lets only its owner in, who may do
        everything that it serves."""
        roles, rates = settings.roles, settings.rates
        without = (Role.ADMIN,) if admin_socket else tuple(Role(name) for name in roles.without_certificate)
        return cls(
            Roles({Role.VERIFY: roles.verify, Role.CIPHER: roles.cipher, Role.ADMIN: roles.admin}, without),
            Rates(
                {
                    Role.VERIFY: Rate(rates.verify_calls_per_s, rates.verify_items_per_s, settings.server.max_items),
                    Role.CIPHER: Rate(rates.cipher_calls_per_s, rates.cipher_bytes_per_s),
                    Role.ADMIN: Rate(rates.admin_calls_per_s),
                },
                rates.burst_s,
            ),
            on_denied=on_denied,
            count=count,
        )

    def check(self, method: str, context: grpc.ServicerContext) -> Peer:
        """The caller of "/package.Service/Method". Raises DeniedError where it lacks the role."""
        peer = peer_of(context)
        allowed = allowed_roles(method)
        if allowed is not None and not allowed & self._roles.of(peer):
            role = role_of_method(method)
            assert role is not None
            self._denied(peer, method, role)
            raise DeniedError(f"this call needs the role {role}, which the caller has not")
        return peer

    def charge(self, method: str, peer: Peer, size: int) -> None:
        """Takes a call of `size` (items, of ciphers bytes). Raises CapacityError with the time to wait."""
        wait = self.wait_s(method, peer, size)
        if wait > 0:
            role = role_of_method(method)
            raise CapacityError(f"the rate of one caller with the role {role} is used up", wait)

    def wait_s(self, method: str, peer: Peer, size: int) -> float:
        """As `charge`, but says how long to wait instead of raising: 0 where the call was taken."""
        role = role_of_method(method)
        wait = 0.0 if role is None else self._rates.wait_s(role, peer.name, size)
        if wait > 0 and self._count is not None:
            self._count(str(role), "rate")
        return wait

    def _denied(self, peer: Peer, method: str, role: Role) -> None:
        if self._count is not None:
            self._count(str(role), "role")
        key, now = (peer.name, method), self._clock()
        with self._lock:
            at, again = self._told.get(key, (float("-inf"), 0))
            if now - at < _TELL_AGAIN_S:
                self._told[key] = (at, again + 1)
                return
            self._told[key] = (now, 0)
            self._told.move_to_end(key)
            if len(self._told) > _MOST_TOLD:
                self._told.popitem(last=False)
        _log.warning("call_denied", caller=peer.name, method=method, role=str(role), again=again)
        if self._on_denied is not None:
            self._on_denied(Denial(peer.name, method, role, again))
