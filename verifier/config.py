"""The daemon's configuration: file < environment < flags. An unknown key is an error wherever it comes from.

    [server]                                   VERIFIER_SERVER__LISTEN='["127.0.0.1:50051"]'
    listen = ["127.0.0.1:50051"]               verifier serve --set 'server.listen=["127.0.0.1:50051"]'

Units are in the names: `_s` seconds, `_bytes`, `_items`. `verifier config --show` prints what holds in the end.
"""

from __future__ import annotations

import json
import os
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, SecretStr, ValidationError, model_validator
from pydantic_settings import (
    BaseSettings,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    SettingsError,
    TomlConfigSettingsSource,
)

from verifier.errors import ConfigError
from verifier.telemetry import LogFormat, LogLevel

__all__ = [
    "ENVIRONMENT_PREFIX",
    "Settings",
    "default_admin_address",
    "default_memory_address",
    "load_settings",
    "parse_overrides",
    "show",
]

ENVIRONMENT_PREFIX = "VERIFIER_"
_MIB = 1 << 20
_SLOT_SHARE = 0.75  # of a slot that columns may fill; results and rounding need the rest


def default_admin_address() -> str:
    """Where a daemon's admin listener is, and where `verifier plugin` looks for it, unless told otherwise."""
    if os.geteuid() == 0:
        return "unix:/run/verifier/admin.sock"
    folder = os.environ.get("XDG_RUNTIME_DIR") or str(Path.home() / ".local" / "state")
    return f"unix:{folder}/verifier/admin.sock"


SocketMode = Annotated[str, Field(pattern="^0?[0-7]{3}$")]  # octal, as chmod takes it
SubjectPattern = Annotated[str, Field(pattern=r"^(\*|(CN|O|OU|SAN)=.+)$")]


def default_memory_address() -> str:
    """Where clients on this host register memory, unless told otherwise."""
    return f"{default_admin_address().rpartition('/')[0]}/memory.sock"


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True)


class ServerSettings(_Section):
    """The listener for work."""

    listen: tuple[str, ...] = ("127.0.0.1:50051",)  # host:port, [v6]:port or unix:/path
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
    listen: str = "auto"  # unix:/path where regions are registered; auto: memory.sock beside the admin socket
    socket_mode: SocketMode = "0660"
    max_regions: int = Field(default=64, ge=1, le=4096)
    max_bytes: int = Field(default=4 << 30, ge=4096)  # of all regions together


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
    max_calls: int = Field(default=32, ge=1, le=4096)  # unary calls handled at once
    max_streams: int = Field(default=32, ge=1, le=4096)
    delete_wait_s: float = Field(default=10.0, ge=0)  # how long deleting a key waits for calls that have it
    stream_held_bytes: int = Field(default=16 * _MIB, ge=0)  # of one message that a stream decrypts in GCM
    held_bytes: int = Field(default=256 * _MIB, ge=0)  # of all of them together


class LogSettings(_Section):
    """Logs on standard error."""

    level: LogLevel = "info"
    format: LogFormat = "console"


class Settings(BaseSettings):
    """Everything that can be set."""

    model_config = SettingsConfigDict(
        env_prefix=ENVIRONMENT_PREFIX, env_nested_delimiter="__", extra="forbid", frozen=True, validate_default=True
    )

    server: ServerSettings = ServerSettings()
    health: HealthSettings = HealthSettings()
    admin: AdminSettings = AdminSettings()
    metrics: MetricsSettings = MetricsSettings()
    status: StatusSettings = StatusSettings()
    roles: RoleSettings = RoleSettings()
    rates: RateSettings = RateSettings()
    tracing: TracingSettings = TracingSettings()
    shared_memory: SharedMemorySettings = SharedMemorySettings()
    devices: DeviceSettings = DeviceSettings()
    scheduling: SchedulingSettings = SchedulingSettings()
    plugins: PluginSettings = PluginSettings()
    keys: KeySettings = KeySettings()
    cipher: CipherSettings = CipherSettings()
    log: LogSettings = LogSettings()

    @model_validator(mode="after")
    def _agree(self) -> Settings:
        server, slot_bytes = self.server, self.devices.slot_bytes
        if (server.tls_certificate_file is None) != (server.tls_key_file is None):
            raise ValueError("server.tls_certificate_file and server.tls_key_file belong together")
        if server.tls_client_ca_file and not server.tls_certificate_file:
            raise ValueError("server.tls_client_ca_file needs server.tls_certificate_file")
        if self.roles.admin and not server.tls_client_ca_file:
            raise ValueError("roles.admin needs server.tls_client_ca_file: roles are read from clients' certificates")
        if server.max_batch_bytes > _SLOT_SHARE * slot_bytes:
            raise ValueError(
                f"server.max_batch_bytes: {server.max_batch_bytes} must not be above three quarters of "
                f"devices.slot_bytes, which are {int(_SLOT_SHARE * slot_bytes)}"
            )
        if server.region_bytes < 2 * server.max_batch_bytes:
            raise ValueError("server.region_bytes must be twice server.max_batch_bytes at least")
        if server.max_message_bytes < server.max_batch_bytes + 65536:
            raise ValueError("server.max_message_bytes must be 65536 above server.max_batch_bytes at least")
        if self.cipher.stream_held_bytes > server.max_message_bytes - 65536:
            raise ValueError("cipher.stream_held_bytes must be 65536 below server.max_message_bytes at least")
        if self.scheduling.queue_items < server.max_items or self.scheduling.queue_bytes < server.max_batch_bytes:
            raise ValueError("scheduling.queue_items and queue_bytes must have room for one largest batch")
        return self


def load_settings(file: Path | None = None, overrides: Mapping[str, Any] | None = None) -> Settings:
    """Reads file < environment < overrides (nested, such as {"server": {"listen": [...]}}).

    Raises ConfigError naming the source and the setting.
    """

    class Sources(Settings):
        @classmethod
        def settings_customise_sources(
            cls,
            settings_cls: type[BaseSettings],
            init_settings: PydanticBaseSettingsSource,
            env_settings: PydanticBaseSettingsSource,
            dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003
            file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003
        ) -> tuple[PydanticBaseSettingsSource, ...]:
            if file is None:
                return init_settings, env_settings
            return init_settings, env_settings, TomlConfigSettingsSource(settings_cls, file)

    _check_environment()
    try:
        if file is not None:
            file.read_bytes()  # a missing file is an error, not an empty one
        return Settings.model_validate(Sources(**(overrides or {})).model_dump())
    except OSError as error:
        raise ConfigError(f"{file}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{file}: not TOML: {error}") from None
    except SettingsError as error:
        raise ConfigError(f"environment: {error}; lists are written as JSON") from None
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(str(part) for part in first["loc"])
        message = first["msg"].removeprefix("Value error, ")
        if first["type"] == "extra_forbidden":
            message = "there is no such setting"
        elif first["type"] == "tuple_type":
            message = 'a list is needed; the command line and the environment write it as JSON, such as ["a", "b"]'
        raise ConfigError(f"{key}: {message}" if key else message) from None


def _check_environment() -> None:
    """A misspelt section is an error too. Names without a double underscore belong to other tools."""
    for name in os.environ:
        section, double, _ = name.removeprefix(ENVIRONMENT_PREFIX).partition("__")
        if name.startswith(ENVIRONMENT_PREFIX) and double and section.lower() not in Settings.model_fields:
            raise ConfigError(f"{name}: there is no section {section.lower()}")


def parse_overrides(assignments: Iterable[str]) -> dict[str, Any]:
    """section.name=value from the command line. Raises ConfigError."""
    data: dict[str, Any] = {}
    for assignment in assignments:
        path, equals, value = assignment.partition("=")
        section, dot, name = path.partition(".")
        if not equals or not dot:
            raise ConfigError(f"--set {assignment}: must be section.name=value")
        data.setdefault(section, {})[name] = _value(value)
    return data


def _value(text: str) -> Any:
    """JSON where it is JSON (lists, numbers, true), and otherwise the text itself."""
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return text


def show(settings: Settings) -> str:
    """The settings as a TOML file that gives the same ones; secrets are masked, absent settings are comments."""
    lines = []
    for section in type(settings).model_fields:
        lines.append(f"[{section}]")
        for name, value in getattr(settings, section):
            hidden = value is None or isinstance(value, SecretStr)
            lines.append(f"{'# ' if hidden else ''}{name} ={'' if value is None else f' {_toml(value)}'}")
        lines.append("")
    return "\n".join(lines)


def _toml(value: Any) -> str:
    if isinstance(value, SecretStr):
        return '"********"'
    if isinstance(value, tuple):
        return f"[{', '.join(_toml(item) for item in value)}]"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{json.dumps(key)} = {_toml(item)}' for key, item in value.items())}}}"
    if isinstance(value, Path):
        return json.dumps(str(value))
    return json.dumps(value)
