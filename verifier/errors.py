"""Every error that the daemon raises on purpose.

    VerifierError
    ├── RequestError          the caller's fault             INVALID_ARGUMENT
    │   ├── NotServedError    no active plugin serves it     FAILED_PRECONDITION
    │   ├── NotFoundError     an unknown handle or version   NOT_FOUND
    │   └── KeyInUseError     a deleted key is in use yet    FAILED_PRECONDITION
    ├── DeniedError           the caller's role forbids it   PERMISSION_DENIED
    ├── CapacityError         full for now, try again        RESOURCE_EXHAUSTED
    ├── DeadlineError         too late                       DEADLINE_EXCEEDED
    ├── BackendError          a device or its worker failed  UNAVAILABLE
    ├── StoppingError         the daemon is stopping         UNAVAILABLE
    ├── DeviceUnavailableError  no such device here          (start-up: says what to install)
    ├── PluginError           a plugin cannot be used        FAILED_PRECONDITION
    │   ├── ManifestError     its manifest is wrong
    │   ├── TrustError        not allowed to load            PERMISSION_DENIED
    │   ├── BuildError        its source does not compile
    │   ├── ProviderError     a library that it may use is not here, or wrong
    │   ├── SelfTestError     a known answer came out wrong
    │   └── ConflictError     a newer operation has won      ABORTED
    └── ConfigError           the configuration is wrong

`verifier.api` is the only place that turns them into gRPC status codes.
"""

from __future__ import annotations

__all__ = [
    "BackendError",
    "BuildError",
    "CapacityError",
    "ConfigError",
    "ConflictError",
    "DeadlineError",
    "DeniedError",
    "DeviceUnavailableError",
    "KeyInUseError",
    "ManifestError",
    "NotFoundError",
    "NotServedError",
    "PluginError",
    "ProviderError",
    "RequestError",
    "SelfTestError",
    "StoppingError",
    "TrustError",
    "VerifierError",
]


class VerifierError(Exception):
    """Base of every error raised on purpose."""


class RequestError(VerifierError):
    """The request is wrong; the text names the field and the limit."""

    def __init__(self, field: str, problem: str) -> None:
        super().__init__(f"{field}: {problem}")
        self.field = field
        self.problem = problem


class NotServedError(RequestError):
    """No active plugin serves this operation and scheme."""


class NotFoundError(RequestError):
    """A handle, plugin or version that this daemon does not know."""


class KeyInUseError(RequestError):
    """A key was deleted and calls have it yet."""


class DeniedError(VerifierError):
    """The caller has not the role that the call needs."""


class CapacityError(VerifierError):
    """A queue is full, or a rate used up; try again after `retry_after_s`."""

    def __init__(self, problem: str, retry_after_s: float) -> None:
        super().__init__(problem)
        self.retry_after_s = retry_after_s


class DeadlineError(VerifierError):
    """The caller's deadline passed before the work was done."""


class BackendError(VerifierError):
    """A device or its worker failed. `sticky`: the device's context is lost and its worker must be replaced."""

    def __init__(self, problem: str, *, sticky: bool = False) -> None:
        super().__init__(problem)
        self.sticky = sticky

    def __reduce__(self) -> tuple[object, ...]:
        return (_rebuild_backend_error, (str(self), self.sticky))


def _rebuild_backend_error(problem: str, sticky: bool) -> BackendError:
    return BackendError(problem, sticky=sticky)


class StoppingError(VerifierError):
    """The daemon is stopping and takes no new work."""


class DeviceUnavailableError(VerifierError):
    """The asked device cannot be used here; the text says what to install."""


class PluginError(VerifierError):
    """A plugin cannot be used."""


class ManifestError(PluginError):
    """A manifest is wrong; the text names the file, the key and, where it can, the line."""


class TrustError(PluginError):
    """A plugin is neither in the lock file nor signed by a configured key."""


class BuildError(PluginError):
    """A kernel source does not compile; the text ends with the compiler's log."""


class ProviderError(PluginError):
    """A library that a plugin's variant is linked with cannot be used here, or its build failed."""


class SelfTestError(PluginError):
    """A known answer came out wrong on a device."""


class ConflictError(PluginError):
    """A newer operation on the same plugin has won."""


class ConfigError(VerifierError):
    """The configuration is wrong; the text names the setting."""
