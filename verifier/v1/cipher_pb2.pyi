from verifier.v1 import verifier_pb2 as _verifier_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class CipherAlgorithm(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    CIPHER_ALGORITHM_UNSPECIFIED: _ClassVar[CipherAlgorithm]
    CIPHER_ALGORITHM_AES: _ClassVar[CipherAlgorithm]
    CIPHER_ALGORITHM_SM4: _ClassVar[CipherAlgorithm]
    CIPHER_ALGORITHM_ARIA: _ClassVar[CipherAlgorithm]
    CIPHER_ALGORITHM_KUZNYECHIK: _ClassVar[CipherAlgorithm]
    CIPHER_ALGORITHM_HIGHT: _ClassVar[CipherAlgorithm]
    CIPHER_ALGORITHM_SKINNY_64: _ClassVar[CipherAlgorithm]
    CIPHER_ALGORITHM_SKINNY_128: _ClassVar[CipherAlgorithm]

class CipherMode(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    CIPHER_MODE_UNSPECIFIED: _ClassVar[CipherMode]
    CIPHER_MODE_ECB: _ClassVar[CipherMode]
    CIPHER_MODE_CTR: _ClassVar[CipherMode]
    CIPHER_MODE_CBC: _ClassVar[CipherMode]
    CIPHER_MODE_GCM: _ClassVar[CipherMode]

class Direction(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    DIRECTION_UNSPECIFIED: _ClassVar[Direction]
    DIRECTION_ENCRYPT: _ClassVar[Direction]
    DIRECTION_DECRYPT: _ClassVar[Direction]
    DIRECTION_AUTHENTICATE: _ClassVar[Direction]

class CipherByteOrder(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    CIPHER_BYTE_ORDER_UNSPECIFIED: _ClassVar[CipherByteOrder]
    CIPHER_BYTE_ORDER_LOW_FIRST: _ClassVar[CipherByteOrder]
    CIPHER_BYTE_ORDER_HIGH_FIRST: _ClassVar[CipherByteOrder]

class CounterFormat(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    COUNTER_FORMAT_UNSPECIFIED: _ClassVar[CounterFormat]
    COUNTER_FORMAT_FULL_BLOCK: _ClassVar[CounterFormat]
    COUNTER_FORMAT_GOST_HALF_BLOCK: _ClassVar[CounterFormat]
CIPHER_ALGORITHM_UNSPECIFIED: CipherAlgorithm
CIPHER_ALGORITHM_AES: CipherAlgorithm
CIPHER_ALGORITHM_SM4: CipherAlgorithm
CIPHER_ALGORITHM_ARIA: CipherAlgorithm
CIPHER_ALGORITHM_KUZNYECHIK: CipherAlgorithm
CIPHER_ALGORITHM_HIGHT: CipherAlgorithm
CIPHER_ALGORITHM_SKINNY_64: CipherAlgorithm
CIPHER_ALGORITHM_SKINNY_128: CipherAlgorithm
CIPHER_MODE_UNSPECIFIED: CipherMode
CIPHER_MODE_ECB: CipherMode
CIPHER_MODE_CTR: CipherMode
CIPHER_MODE_CBC: CipherMode
CIPHER_MODE_GCM: CipherMode
DIRECTION_UNSPECIFIED: Direction
DIRECTION_ENCRYPT: Direction
DIRECTION_DECRYPT: Direction
DIRECTION_AUTHENTICATE: Direction
CIPHER_BYTE_ORDER_UNSPECIFIED: CipherByteOrder
CIPHER_BYTE_ORDER_LOW_FIRST: CipherByteOrder
CIPHER_BYTE_ORDER_HIGH_FIRST: CipherByteOrder
COUNTER_FORMAT_UNSPECIFIED: CounterFormat
COUNTER_FORMAT_FULL_BLOCK: CounterFormat
COUNTER_FORMAT_GOST_HALF_BLOCK: CounterFormat

class CipherScheme(_message.Message):
    __slots__ = ("algorithm", "mode", "direction", "byte_order", "counter_format", "plugin")
    ALGORITHM_FIELD_NUMBER: _ClassVar[int]
    MODE_FIELD_NUMBER: _ClassVar[int]
    DIRECTION_FIELD_NUMBER: _ClassVar[int]
    BYTE_ORDER_FIELD_NUMBER: _ClassVar[int]
    COUNTER_FORMAT_FIELD_NUMBER: _ClassVar[int]
    PLUGIN_FIELD_NUMBER: _ClassVar[int]
    algorithm: CipherAlgorithm
    mode: CipherMode
    direction: Direction
    byte_order: CipherByteOrder
    counter_format: CounterFormat
    plugin: str
    def __init__(self, algorithm: _Optional[_Union[CipherAlgorithm, str]] = ..., mode: _Optional[_Union[CipherMode, str]] = ..., direction: _Optional[_Union[Direction, str]] = ..., byte_order: _Optional[_Union[CipherByteOrder, str]] = ..., counter_format: _Optional[_Union[CounterFormat, str]] = ..., plugin: _Optional[str] = ...) -> None: ...

class CreateKeyRequest(_message.Message):
    __slots__ = ("algorithm", "key")
    ALGORITHM_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    algorithm: CipherAlgorithm
    key: bytes
    def __init__(self, algorithm: _Optional[_Union[CipherAlgorithm, str]] = ..., key: _Optional[bytes] = ...) -> None: ...

class CreateKeyResponse(_message.Message):
    __slots__ = ("key",)
    KEY_FIELD_NUMBER: _ClassVar[int]
    key: int
    def __init__(self, key: _Optional[int] = ...) -> None: ...

class DeleteKeyRequest(_message.Message):
    __slots__ = ("key",)
    KEY_FIELD_NUMBER: _ClassVar[int]
    key: int
    def __init__(self, key: _Optional[int] = ...) -> None: ...

class DeleteKeyResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class TransformRequest(_message.Message):
    __slots__ = ("request_id", "items", "scheme", "keys", "key_index", "data", "iv", "aad", "tags", "first_block", "priority")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    SCHEME_FIELD_NUMBER: _ClassVar[int]
    KEYS_FIELD_NUMBER: _ClassVar[int]
    KEY_INDEX_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    IV_FIELD_NUMBER: _ClassVar[int]
    AAD_FIELD_NUMBER: _ClassVar[int]
    TAGS_FIELD_NUMBER: _ClassVar[int]
    FIRST_BLOCK_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    request_id: int
    items: int
    scheme: CipherScheme
    keys: _containers.RepeatedScalarFieldContainer[int]
    key_index: bytes
    data: _verifier_pb2.Column
    iv: _verifier_pb2.Column
    aad: _verifier_pb2.Column
    tags: bytes
    first_block: int
    priority: _verifier_pb2.Priority
    def __init__(self, request_id: _Optional[int] = ..., items: _Optional[int] = ..., scheme: _Optional[_Union[CipherScheme, _Mapping]] = ..., keys: _Optional[_Iterable[int]] = ..., key_index: _Optional[bytes] = ..., data: _Optional[_Union[_verifier_pb2.Column, _Mapping]] = ..., iv: _Optional[_Union[_verifier_pb2.Column, _Mapping]] = ..., aad: _Optional[_Union[_verifier_pb2.Column, _Mapping]] = ..., tags: _Optional[bytes] = ..., first_block: _Optional[int] = ..., priority: _Optional[_Union[_verifier_pb2.Priority, str]] = ...) -> None: ...

class TransformResponse(_message.Message):
    __slots__ = ("request_id", "items", "valid", "decided", "problems", "data", "tags", "served_by", "device", "timings")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    VALID_FIELD_NUMBER: _ClassVar[int]
    DECIDED_FIELD_NUMBER: _ClassVar[int]
    PROBLEMS_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    TAGS_FIELD_NUMBER: _ClassVar[int]
    SERVED_BY_FIELD_NUMBER: _ClassVar[int]
    DEVICE_FIELD_NUMBER: _ClassVar[int]
    TIMINGS_FIELD_NUMBER: _ClassVar[int]
    request_id: int
    items: int
    valid: bytes
    decided: bytes
    problems: _verifier_pb2.Problems
    data: _verifier_pb2.Column
    tags: bytes
    served_by: str
    device: str
    timings: _verifier_pb2.Timings
    def __init__(self, request_id: _Optional[int] = ..., items: _Optional[int] = ..., valid: _Optional[bytes] = ..., decided: _Optional[bytes] = ..., problems: _Optional[_Union[_verifier_pb2.Problems, _Mapping]] = ..., data: _Optional[_Union[_verifier_pb2.Column, _Mapping]] = ..., tags: _Optional[bytes] = ..., served_by: _Optional[str] = ..., device: _Optional[str] = ..., timings: _Optional[_Union[_verifier_pb2.Timings, _Mapping]] = ...) -> None: ...

class TransformBegin(_message.Message):
    __slots__ = ("scheme", "key", "iv", "aad", "tag", "first_block", "priority")
    SCHEME_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    IV_FIELD_NUMBER: _ClassVar[int]
    AAD_FIELD_NUMBER: _ClassVar[int]
    TAG_FIELD_NUMBER: _ClassVar[int]
    FIRST_BLOCK_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    scheme: CipherScheme
    key: int
    iv: bytes
    aad: bytes
    tag: bytes
    first_block: int
    priority: _verifier_pb2.Priority
    def __init__(self, scheme: _Optional[_Union[CipherScheme, _Mapping]] = ..., key: _Optional[int] = ..., iv: _Optional[bytes] = ..., aad: _Optional[bytes] = ..., tag: _Optional[bytes] = ..., first_block: _Optional[int] = ..., priority: _Optional[_Union[_verifier_pb2.Priority, str]] = ...) -> None: ...

class TransformStreamRequest(_message.Message):
    __slots__ = ("begin", "data", "last")
    BEGIN_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    LAST_FIELD_NUMBER: _ClassVar[int]
    begin: TransformBegin
    data: bytes
    last: bool
    def __init__(self, begin: _Optional[_Union[TransformBegin, _Mapping]] = ..., data: _Optional[bytes] = ..., last: _Optional[bool] = ...) -> None: ...

class TransformStreamResponse(_message.Message):
    __slots__ = ("data", "last", "tag", "authentic", "served_by", "device")
    DATA_FIELD_NUMBER: _ClassVar[int]
    LAST_FIELD_NUMBER: _ClassVar[int]
    TAG_FIELD_NUMBER: _ClassVar[int]
    AUTHENTIC_FIELD_NUMBER: _ClassVar[int]
    SERVED_BY_FIELD_NUMBER: _ClassVar[int]
    DEVICE_FIELD_NUMBER: _ClassVar[int]
    data: bytes
    last: bool
    tag: bytes
    authentic: bool
    served_by: str
    device: str
    def __init__(self, data: _Optional[bytes] = ..., last: _Optional[bool] = ..., tag: _Optional[bytes] = ..., authentic: _Optional[bool] = ..., served_by: _Optional[str] = ..., device: _Optional[str] = ...) -> None: ...

class GetCiphersRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetCiphersResponse(_message.Message):
    __slots__ = ("ciphers", "max_items", "max_batch_bytes", "max_chunk_bytes", "max_held_bytes", "max_short_bytes")
    CIPHERS_FIELD_NUMBER: _ClassVar[int]
    MAX_ITEMS_FIELD_NUMBER: _ClassVar[int]
    MAX_BATCH_BYTES_FIELD_NUMBER: _ClassVar[int]
    MAX_CHUNK_BYTES_FIELD_NUMBER: _ClassVar[int]
    MAX_HELD_BYTES_FIELD_NUMBER: _ClassVar[int]
    MAX_SHORT_BYTES_FIELD_NUMBER: _ClassVar[int]
    ciphers: _containers.RepeatedCompositeFieldContainer[Cipher]
    max_items: int
    max_batch_bytes: int
    max_chunk_bytes: int
    max_held_bytes: int
    max_short_bytes: int
    def __init__(self, ciphers: _Optional[_Iterable[_Union[Cipher, _Mapping]]] = ..., max_items: _Optional[int] = ..., max_batch_bytes: _Optional[int] = ..., max_chunk_bytes: _Optional[int] = ..., max_held_bytes: _Optional[int] = ..., max_short_bytes: _Optional[int] = ...) -> None: ...

class Cipher(_message.Message):
    __slots__ = ("algorithm", "block_bytes", "key_bytes", "modes", "plugin", "served_by", "devices")
    ALGORITHM_FIELD_NUMBER: _ClassVar[int]
    BLOCK_BYTES_FIELD_NUMBER: _ClassVar[int]
    KEY_BYTES_FIELD_NUMBER: _ClassVar[int]
    MODES_FIELD_NUMBER: _ClassVar[int]
    PLUGIN_FIELD_NUMBER: _ClassVar[int]
    SERVED_BY_FIELD_NUMBER: _ClassVar[int]
    DEVICES_FIELD_NUMBER: _ClassVar[int]
    algorithm: CipherAlgorithm
    block_bytes: int
    key_bytes: _containers.RepeatedScalarFieldContainer[int]
    modes: _containers.RepeatedScalarFieldContainer[CipherMode]
    plugin: str
    served_by: str
    devices: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, algorithm: _Optional[_Union[CipherAlgorithm, str]] = ..., block_bytes: _Optional[int] = ..., key_bytes: _Optional[_Iterable[int]] = ..., modes: _Optional[_Iterable[_Union[CipherMode, str]]] = ..., plugin: _Optional[str] = ..., served_by: _Optional[str] = ..., devices: _Optional[_Iterable[str]] = ...) -> None: ...
