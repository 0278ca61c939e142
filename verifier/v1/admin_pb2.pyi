from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class PluginState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    PLUGIN_STATE_UNSPECIFIED: _ClassVar[PluginState]
    PLUGIN_STATE_ABSENT: _ClassVar[PluginState]
    PLUGIN_STATE_VERIFYING: _ClassVar[PluginState]
    PLUGIN_STATE_LOADING: _ClassVar[PluginState]
    PLUGIN_STATE_SELFTEST: _ClassVar[PluginState]
    PLUGIN_STATE_WARM: _ClassVar[PluginState]
    PLUGIN_STATE_ACTIVE: _ClassVar[PluginState]
    PLUGIN_STATE_DEGRADED: _ClassVar[PluginState]
    PLUGIN_STATE_DRAINING: _ClassVar[PluginState]
    PLUGIN_STATE_DRAINING_STUCK: _ClassVar[PluginState]
    PLUGIN_STATE_UNLOADED: _ClassVar[PluginState]
    PLUGIN_STATE_FAILED: _ClassVar[PluginState]
PLUGIN_STATE_UNSPECIFIED: PluginState
PLUGIN_STATE_ABSENT: PluginState
PLUGIN_STATE_VERIFYING: PluginState
PLUGIN_STATE_LOADING: PluginState
PLUGIN_STATE_SELFTEST: PluginState
PLUGIN_STATE_WARM: PluginState
PLUGIN_STATE_ACTIVE: PluginState
PLUGIN_STATE_DEGRADED: PluginState
PLUGIN_STATE_DRAINING: PluginState
PLUGIN_STATE_DRAINING_STUCK: PluginState
PLUGIN_STATE_UNLOADED: PluginState
PLUGIN_STATE_FAILED: PluginState

class PluginInstance(_message.Message):
    __slots__ = ("label", "plugin", "version", "generation", "digest", "state", "reason", "active", "leases", "devices", "missing_devices", "origin", "changed_unix_ms", "builds")
    class BuildsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    LABEL_FIELD_NUMBER: _ClassVar[int]
    PLUGIN_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    ACTIVE_FIELD_NUMBER: _ClassVar[int]
    LEASES_FIELD_NUMBER: _ClassVar[int]
    DEVICES_FIELD_NUMBER: _ClassVar[int]
    MISSING_DEVICES_FIELD_NUMBER: _ClassVar[int]
    ORIGIN_FIELD_NUMBER: _ClassVar[int]
    CHANGED_UNIX_MS_FIELD_NUMBER: _ClassVar[int]
    BUILDS_FIELD_NUMBER: _ClassVar[int]
    label: str
    plugin: str
    version: str
    generation: int
    digest: str
    state: PluginState
    reason: str
    active: bool
    leases: int
    devices: _containers.RepeatedScalarFieldContainer[str]
    missing_devices: _containers.RepeatedScalarFieldContainer[str]
    origin: str
    changed_unix_ms: int
    builds: _containers.ScalarMap[str, str]
    def __init__(self, label: _Optional[str] = ..., plugin: _Optional[str] = ..., version: _Optional[str] = ..., generation: _Optional[int] = ..., digest: _Optional[str] = ..., state: _Optional[_Union[PluginState, str]] = ..., reason: _Optional[str] = ..., active: _Optional[bool] = ..., leases: _Optional[int] = ..., devices: _Optional[_Iterable[str]] = ..., missing_devices: _Optional[_Iterable[str]] = ..., origin: _Optional[str] = ..., changed_unix_ms: _Optional[int] = ..., builds: _Optional[_Mapping[str, str]] = ...) -> None: ...

class ListPluginsRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListPluginsResponse(_message.Message):
    __slots__ = ("instances",)
    INSTANCES_FIELD_NUMBER: _ClassVar[int]
    instances: _containers.RepeatedCompositeFieldContainer[PluginInstance]
    def __init__(self, instances: _Optional[_Iterable[_Union[PluginInstance, _Mapping]]] = ...) -> None: ...

class LoadPluginRequest(_message.Message):
    __slots__ = ("plugin", "keep_inactive", "force", "variant", "tunables")
    class TunablesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    PLUGIN_FIELD_NUMBER: _ClassVar[int]
    KEEP_INACTIVE_FIELD_NUMBER: _ClassVar[int]
    FORCE_FIELD_NUMBER: _ClassVar[int]
    VARIANT_FIELD_NUMBER: _ClassVar[int]
    TUNABLES_FIELD_NUMBER: _ClassVar[int]
    plugin: str
    keep_inactive: bool
    force: bool
    variant: str
    tunables: _containers.ScalarMap[str, str]
    def __init__(self, plugin: _Optional[str] = ..., keep_inactive: _Optional[bool] = ..., force: _Optional[bool] = ..., variant: _Optional[str] = ..., tunables: _Optional[_Mapping[str, str]] = ...) -> None: ...

class UnloadPluginRequest(_message.Message):
    __slots__ = ("plugin", "wait", "timeout_s")
    PLUGIN_FIELD_NUMBER: _ClassVar[int]
    WAIT_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_S_FIELD_NUMBER: _ClassVar[int]
    plugin: str
    wait: bool
    timeout_s: float
    def __init__(self, plugin: _Optional[str] = ..., wait: _Optional[bool] = ..., timeout_s: _Optional[float] = ...) -> None: ...

class ReloadPluginRequest(_message.Message):
    __slots__ = ("plugin",)
    PLUGIN_FIELD_NUMBER: _ClassVar[int]
    plugin: str
    def __init__(self, plugin: _Optional[str] = ...) -> None: ...

class ActivatePluginRequest(_message.Message):
    __slots__ = ("plugin",)
    PLUGIN_FIELD_NUMBER: _ClassVar[int]
    plugin: str
    def __init__(self, plugin: _Optional[str] = ...) -> None: ...

class RollbackPluginRequest(_message.Message):
    __slots__ = ("plugin",)
    PLUGIN_FIELD_NUMBER: _ClassVar[int]
    plugin: str
    def __init__(self, plugin: _Optional[str] = ...) -> None: ...

class ConfirmPluginRequest(_message.Message):
    __slots__ = ("plugin",)
    PLUGIN_FIELD_NUMBER: _ClassVar[int]
    plugin: str
    def __init__(self, plugin: _Optional[str] = ...) -> None: ...

class PluginHistoryRequest(_message.Message):
    __slots__ = ("plugin",)
    PLUGIN_FIELD_NUMBER: _ClassVar[int]
    plugin: str
    def __init__(self, plugin: _Optional[str] = ...) -> None: ...

class PluginTransition(_message.Message):
    __slots__ = ("at_unix_ms", "label", "state", "reason")
    AT_UNIX_MS_FIELD_NUMBER: _ClassVar[int]
    LABEL_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    at_unix_ms: int
    label: str
    state: PluginState
    reason: str
    def __init__(self, at_unix_ms: _Optional[int] = ..., label: _Optional[str] = ..., state: _Optional[_Union[PluginState, str]] = ..., reason: _Optional[str] = ...) -> None: ...

class PluginHistoryResponse(_message.Message):
    __slots__ = ("transitions",)
    TRANSITIONS_FIELD_NUMBER: _ClassVar[int]
    transitions: _containers.RepeatedCompositeFieldContainer[PluginTransition]
    def __init__(self, transitions: _Optional[_Iterable[_Union[PluginTransition, _Mapping]]] = ...) -> None: ...

class AuditRequest(_message.Message):
    __slots__ = ("limit",)
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    limit: int
    def __init__(self, limit: _Optional[int] = ...) -> None: ...

class AuditRecord(_message.Message):
    __slots__ = ("at_unix_ms", "actor", "operation", "target", "label", "digest", "outcome", "detail")
    AT_UNIX_MS_FIELD_NUMBER: _ClassVar[int]
    ACTOR_FIELD_NUMBER: _ClassVar[int]
    OPERATION_FIELD_NUMBER: _ClassVar[int]
    TARGET_FIELD_NUMBER: _ClassVar[int]
    LABEL_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    DETAIL_FIELD_NUMBER: _ClassVar[int]
    at_unix_ms: int
    actor: str
    operation: str
    target: str
    label: str
    digest: str
    outcome: str
    detail: str
    def __init__(self, at_unix_ms: _Optional[int] = ..., actor: _Optional[str] = ..., operation: _Optional[str] = ..., target: _Optional[str] = ..., label: _Optional[str] = ..., digest: _Optional[str] = ..., outcome: _Optional[str] = ..., detail: _Optional[str] = ...) -> None: ...

class AuditResponse(_message.Message):
    __slots__ = ("records",)
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    records: _containers.RepeatedCompositeFieldContainer[AuditRecord]
    def __init__(self, records: _Optional[_Iterable[_Union[AuditRecord, _Mapping]]] = ...) -> None: ...
