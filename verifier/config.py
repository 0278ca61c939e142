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
from typing import Any

from pydantic import SecretStr, ValidationError, model_validator
from pydantic_settings import (
    BaseSettings,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    SettingsError,
    TomlConfigSettingsSource,
)

from verifier._settings import (
    AdminSettings,
    CipherSettings,
    DeviceSettings,
    HealthSettings,
    KeySettings,
    LogSettings,
    MetricsSettings,
    PluginSettings,
    RateSettings,
    RoleSettings,
    SchedulingSettings,
    ServerSettings,
    SharedMemorySettings,
    StatusSettings,
    TracingSettings,
)
from verifier.errors import ConfigError
from verifier.folders import state_folder

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
_SLOT_SHARE = 0.75  # of a slot that columns may fill; results and rounding need the rest


def default_admin_address() -> str:
    """Where a daemon's admin listener is, and where `verifier plugin` looks for it, unless told otherwise."""
    return f"unix:{state_folder()}/admin.sock"


def default_memory_address() -> str:
    """Where clients on this host register memory, unless told otherwise."""
    return f"unix:{state_folder()}/memory.sock"


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

    Raises ConfigError naming the source and the settings, a line each.
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
        raise ConfigError("\n".join(map(_problem, error.errors()))) from None


def _problem(error: Mapping[str, Any]) -> str:
    key = ".".join(str(part) for part in error["loc"])
    message = error["msg"].removeprefix("Value error, ")
    if error["type"] == "extra_forbidden":
        message = "there is no such setting"
    elif error["type"] == "tuple_type":
        message = 'a list is needed; the command line and the environment write it as JSON, such as ["a", "b"]'
    return f"{key}: {message}" if key else message


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
