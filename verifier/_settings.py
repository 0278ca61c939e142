"""The sections of the configuration: every setting with its type, bounds, default and meaning.

Units are in the names: `_s` seconds, `_bytes`, `_items`. docs/operating.md says more of each.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, SecretStr

from verifier.telemetry import LogFormat, LogLevel

__all__ = [
    "AdminSettings",
    "CipherSettings",
    "DeviceSettings",
    "HealthSettings",
    "KeySettings",
    "LogSettings",
    "MetricsSettings",
    "PluginSettings",
    "RateSettings",
    "RoleSettings",
    "SchedulingSettings",
    "ServerSettings",
    "SharedMemorySettings",
    "StatusSettings",
    "TracingSettings",
]

_MIB = 1 << 20


def _mode(text: str) -> str:
    if not re.fullmatch("0?[0-7]{3}", text):
        raise ValueError(f"{text!r} is no mode as chmod takes it, such as 0660")
    return text


def _subject(text: str) -> str:
    if not re.fullmatch(r"\*|(CN|O|OU|SAN)=.+", text):
        raise ValueError(f"{text!r}: what is needed is *, or CN=, O=, OU= or SAN= and a value")
    return text


SocketMode = Annotated[str, AfterValidator(_mode)]
SubjectPattern = Annotated[str, AfterValidator(_subject)]


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True)


class ServerSettings(_Section):
    """The listener for work."""

    listen: tuple[str, ...] = ("127.0.0.1:50051",)  # host:port, [v6]:port or unix:/path
    # The same for callers that must not wait behind others' calls: a front-end process of their own serves these.
    urgent_listen: tuple[str, ...] = ()
    tls_certificate_file: Path | None = None  # PEM; with it and the key the listener speaks TLS
    tls_key_file: Path | None = None
    tls_client_ca_file: Path | None = None  # PEM; clients must then show a certificate that it signed
    insecure: bool = False  # allows listening beyond this host without TLS
    socket_mode: SocketMode = "0660"  # of a Unix socket
    max_items: int = Field(default=1 << 20, ge=1, le=1 << 24)
    max_batch_bytes: int = Field(default=48 * _MIB, ge=4096)
    max_message_bytes: int = Field(default=64 * _MIB, ge=8192, le=(1 << 31) - 1)
    # Front-end processes that share the ports; 1: none, the daemon's own process does it. Absent: by cores.
    processes: int | None = Field(default=None, ge=1, le=64)
    region_bytes: int = Field(default=256 * _MIB, ge=1 * _MIB, le=1 << 36)  # shared memory of one front end
    max_calls: int = Field(default=128, ge=1, le=4096)  # unary calls handled at once, by one process
    max_streams: int = Field(default=128, ge=1, le=4096)
    stream_in_flight: int = Field(default=32, ge=1, le=1024)  # requests of one stream that are not answered yet
    keepalive_s: float = Field(default=30.0, ge=1)
    drain_s: float = Field(default=30.0, ge=0)  # how long stopping waits for accepted work


class HealthSettings(_Section):
    """The listener that has health alone, and never waits behind work. The work's listener has health too."""

    listen: tuple[str, ...] = ("127.0.0.1:50052",)
    insecure: bool = False  # allows listening beyond this host


class AdminSettings(_Section):
    """The listener of plugin administration. Whoever may use it may load code.

    A Unix socket serves whom its mode lets in. host:port needs mutual TLS, and serves the role admin.
    """

    listen: tuple[str, ...] = ("auto",)  # auto: default_admin_address(), unless another daemon has it
    socket_mode: SocketMode = "0600"


class MetricsSettings(_Section):
    """The listener that Prometheus scrapes; empty: none."""

    listen: str = "127.0.0.1:9464"
    insecure: bool = False  # allows listening beyond this host


class StatusSettings(_Section):
    """The listener of the status page and of `verifier top`; empty: none."""

    listen: str = "auto"  # auto: 127.0.0.1:9465, unless something else has it
    insecure: bool = False  # allows listening beyond this host


class RoleSettings(_Section):
    """Whose certificate has which role: "*", or CN=, O=, OU= or SAN= and a value in which * and ? may stand."""

    verify: tuple[SubjectPattern, ...] = ("*",)
    cipher: tuple[SubjectPattern, ...] = ("*",)
    admin: tuple[SubjectPattern, ...] = ()
    # Of callers without a certificate: where there is no mutual TLS, and on Unix sockets.
    without_certificate: tuple[Literal["verify", "cipher"], ...] = ("verify", "cipher")


class RateSettings(_Section):
    """What one caller in a role may have a second; absent: no limit. A stream is slowed, a single call refused."""

    verify_calls_per_s: float | None = Field(default=None, gt=0)
    verify_items_per_s: float | None = Field(default=None, gt=0)
    cipher_calls_per_s: float | None = Field(default=None, gt=0)
    cipher_bytes_per_s: float | None = Field(default=None, gt=0)
    admin_calls_per_s: float | None = Field(default=None, gt=0)
    burst_s: float = Field(default=1.0, gt=0, le=3600)  # of so many seconds' worth


class TracingSettings(_Section):
    """Spans to an OpenTelemetry collector; needs the extra `tracing`."""

    endpoint: str = ""  # of OTLP over HTTP, such as http://127.0.0.1:4318/v1/traces; empty: no spans
    headers: SecretStr = SecretStr("")  # name=value,name=value: what the collector wants to let us in
    sample_ratio: float = Field(default=0.01, ge=0, le=1)  # of the calls whose client has not decided it


class SharedMemorySettings(_Section):
    """Columns in memory of clients on this host. Off unless told otherwise: the daemon maps what they give it."""

    enabled: bool = False
    # Where regions are registered, unix:/path (descriptors pass on no other); auto: memory.sock beside the admin one.
    listen: Annotated[str, Field(pattern="^(auto|unix:/.+)$")] = "auto"
    socket_mode: SocketMode = "0660"
    max_regions: int = Field(default=64, ge=1, le=4096)
    max_bytes: int = Field(default=4 << 30, ge=4096)  # of all regions together
    # Of one region: a GPU's worker page-locks it whole between two batches, within their time limit.
    max_region_bytes: int = Field(default=1 << 30, ge=4096)
    user_share: float = Field(default=0.5, gt=0, le=1)  # of the first two bounds, for one user of this host


class DeviceSettings(_Section):
    """Which devices work, and their workers."""

    use: tuple[str, ...] = ("auto",)  # auto: every GPU and the CPU; or cuda:0, cpu, ...
    slots: int = Field(default=4, ge=1, le=64)  # batches in flight on one device
    slot_bytes: int = Field(default=64 * _MIB, ge=65536, le=(1 << 32) - 64, multiple_of=64)
    streams: int = Field(default=8, ge=1, le=16)
    cpu_threads: int | None = Field(default=None, ge=1, le=1024)  # of the device cpu; absent: all cores
    drain_timeout_s: float = Field(default=10.0, ge=0)
    # A batch that takes longer than this, and this for each of its items, counts as hanging.
    batch_limit_s: float = Field(default=5.0, gt=0)
    item_limit_s: float | None = Field(default=None, ge=0)  # absent: what suits the device


class SchedulingSettings(_Section):
    """Queues and batching."""

    queue_items: int = Field(default=8 << 20, ge=1)  # accepted and not answered, of one plugin
    queue_bytes: int = Field(default=1 << 30, ge=4096)
    queue_s: float = Field(default=30.0, gt=0)  # the same in seconds of work, by the devices' measured rate
    caller_share: float = Field(default=0.5, gt=0, le=1)  # of either bound, for one caller
    batch_delay_s: float = Field(default=0.0, ge=0, le=1)  # 0: merge only what waits while devices are busy
    launch_items: int = Field(default=1 << 20, ge=32)
    launch_s: float = Field(default=0.01, gt=0, le=10)  # of one launch: what is more urgent waits for it
    launches_per_device: int = Field(default=3, ge=1, le=64)
    retries: int = Field(default=2, ge=0, le=10)  # of a batch whose device failed
    unserved_wait_s: float = Field(default=10.0, ge=0)  # how long a batch waits where none of its devices is up
    measure: bool = True  # devices on known answers at start


class PluginSettings(_Section):
    """Which plugins are loaded, and which may be."""

    load: tuple[str, ...] = ("auto",)  # auto: the shipped ones that a call reaches; or names, name@version, folders
    # By plugin: a variant of its manifest, and values of its tunables. { sm4 = "sliced" }, { sm4 = { NAME = 1 } }
    variants: dict[str, str] = {}
    tunables: dict[str, dict[str, int | str]] = {}
    tuned: bool = True  # of those not named there: what `verifier plugin tune` found, where it is still built
    providers: bool = True  # of those too: libraries that plugins name for CPUs, where they are installed
    folders: tuple[Path, ...] = ()  # searched before the shipped ones
    trust: Literal["locked", "any"] = "locked"  # any: for development, whatever is found may load
    lock_files: tuple[Path, ...] = ()
    public_key_files: tuple[Path, ...] = ()  # PEM, Ed25519: whose bundles may load
    cache_folder: Path | None = None  # of built images; absent: in the user's cache folder
    audit_file: Path | None = None
    watch: bool = False  # load complete plugins that appear in the folders
    drain_timeout_s: float = Field(default=30.0, ge=0)
    keep_previous_s: float = Field(default=600.0, ge=0)
    build_timeout_s: float = Field(default=900.0, gt=0)
    selftest_timeout_s: float = Field(default=300.0, gt=0)  # for one known answer
    quarantine_faults: int = Field(default=3, ge=1)  # so many faults of one plugin on one device ...
    quarantine_window_s: float = Field(default=60.0, gt=0)  # ... within so long take it off that device

    @property
    def choices(self) -> dict[str, tuple[str, dict[str, int | str]]]:
        """By plugin: its variant, empty where none is set, and its tunables."""
        names = (*self.variants, *self.tunables)
        return {name: (self.variants.get(name, ""), self.tunables.get(name, {})) for name in names}


class KeySettings(_Section):
    """Registered key sets, and tables of keys' multiples on the devices."""

    max_sets: int = Field(default=1024, ge=1)
    max_bytes: int = Field(default=1 << 30, ge=64)
    enroll: bool = True  # registered keys get tables; without, their bytes go to the device with every batch
    table_bytes: int | None = Field(default=None, ge=1 << 16)  # of a curve on a device; absent: for 1,024 keys
    window: Literal["auto"] | Annotated[int, Field(ge=4, le=14)] = "auto"  # auto: the largest that table_bytes allow
    expected: int = Field(default=1000, ge=1)  # keys that there must be room for, where window is auto
    devices: tuple[str, ...] = ("auto",)  # that keep tables; auto: all
    promote_after: int = Field(default=0, ge=0)  # a key that no set has gets a table when seen so often; 0: never


class CipherSettings(_Section):
    """Block ciphers under keys that the daemon holds."""

    max_keys: int = Field(default=65536, ge=1, le=1 << 20)
    max_keys_a_caller: int | None = Field(default=None, ge=1)  # absent: a quarter of max_keys
    max_calls: int = Field(default=32, ge=1, le=4096)  # unary calls handled at once
    max_streams: int = Field(default=32, ge=1, le=4096)
    delete_wait_s: float = Field(default=10.0, ge=0)  # how long deleting a key waits for calls that have it
    stream_held_bytes: int = Field(default=16 * _MIB, ge=0)  # of one message that a stream decrypts in GCM
    held_bytes: int = Field(default=256 * _MIB, ge=0)  # of all of them together

    @property
    def caller_keys(self) -> int:
        """Keys that one caller may have."""
        return self.max_keys_a_caller or max(self.max_keys // 4, 1)


class LogSettings(_Section):
    """Logs on standard error."""

    level: LogLevel = "info"
    format: LogFormat = "console"
