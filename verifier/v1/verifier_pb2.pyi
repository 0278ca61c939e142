from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Algorithm(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ALGORITHM_UNSPECIFIED: _ClassVar[Algorithm]
    ALGORITHM_SM2: _ClassVar[Algorithm]
    ALGORITHM_ECDSA_P256: _ClassVar[Algorithm]
    ALGORITHM_ECDSA_SECP256K1: _ClassVar[Algorithm]

class InputKind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    INPUT_KIND_UNSPECIFIED: _ClassVar[InputKind]
    INPUT_KIND_MESSAGE: _ClassVar[InputKind]
    INPUT_KIND_DIGEST: _ClassVar[InputKind]
    INPUT_KIND_HASH_AS_MESSAGE: _ClassVar[InputKind]

class SignatureEncoding(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    SIGNATURE_ENCODING_UNSPECIFIED: _ClassVar[SignatureEncoding]
    SIGNATURE_ENCODING_RAW_RS: _ClassVar[SignatureEncoding]
    SIGNATURE_ENCODING_DER_STRICT: _ClassVar[SignatureEncoding]
    SIGNATURE_ENCODING_DER_LAX: _ClassVar[SignatureEncoding]
    SIGNATURE_ENCODING_RAW_RSV: _ClassVar[SignatureEncoding]
    SIGNATURE_ENCODING_RAW_RS_KEY: _ClassVar[SignatureEncoding]

class KeyEncoding(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    KEY_ENCODING_UNSPECIFIED: _ClassVar[KeyEncoding]
    KEY_ENCODING_RAW_XY: _ClassVar[KeyEncoding]
    KEY_ENCODING_SEC1_UNCOMPRESSED: _ClassVar[KeyEncoding]
    KEY_ENCODING_SEC1_COMPRESSED: _ClassVar[KeyEncoding]
    KEY_ENCODING_SPKI: _ClassVar[KeyEncoding]
    KEY_ENCODING_IN_SIGNATURE: _ClassVar[KeyEncoding]
    KEY_ENCODING_INDEX: _ClassVar[KeyEncoding]

class LowS(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    LOW_S_UNSPECIFIED: _ClassVar[LowS]
    LOW_S_ACCEPT_ANY: _ClassVar[LowS]
    LOW_S_REQUIRE: _ClassVar[LowS]

class Hash(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    HASH_UNSPECIFIED: _ClassVar[Hash]
    HASH_SM3: _ClassVar[Hash]
    HASH_SHA256: _ClassVar[Hash]
    HASH_SHA256D: _ClassVar[Hash]
    HASH_KECCAK256: _ClassVar[Hash]
    HASH_SHA3_256: _ClassVar[Hash]

class Priority(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    PRIORITY_UNSPECIFIED: _ClassVar[Priority]
    PRIORITY_CONSENSUS: _ClassVar[Priority]
    PRIORITY_BLOCK: _ClassVar[Priority]
    PRIORITY_POOL: _ClassVar[Priority]
    PRIORITY_BULK: _ClassVar[Priority]

class ProblemCode(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    PROBLEM_CODE_UNDETERMINED: _ClassVar[ProblemCode]
    PROBLEM_CODE_OUT_OF_RANGE: _ClassVar[ProblemCode]
    PROBLEM_CODE_HIGH_S: _ClassVar[ProblemCode]
    PROBLEM_CODE_SIGNATURE_LENGTH: _ClassVar[ProblemCode]
    PROBLEM_CODE_SIGNATURE_DER: _ClassVar[ProblemCode]
    PROBLEM_CODE_RECOVERY_ID: _ClassVar[ProblemCode]
    PROBLEM_CODE_KEY_LENGTH: _ClassVar[ProblemCode]
    PROBLEM_CODE_KEY_PREFIX: _ClassVar[ProblemCode]
    PROBLEM_CODE_KEY_RANGE: _ClassVar[ProblemCode]
    PROBLEM_CODE_KEY_NOT_ON_CURVE: _ClassVar[ProblemCode]
    PROBLEM_CODE_KEY_SPKI: _ClassVar[ProblemCode]
    PROBLEM_CODE_KEY_INDEX: _ClassVar[ProblemCode]
    PROBLEM_CODE_INPUT_LENGTH: _ClassVar[ProblemCode]
ALGORITHM_UNSPECIFIED: Algorithm
ALGORITHM_SM2: Algorithm
ALGORITHM_ECDSA_P256: Algorithm
ALGORITHM_ECDSA_SECP256K1: Algorithm
INPUT_KIND_UNSPECIFIED: InputKind
INPUT_KIND_MESSAGE: InputKind
INPUT_KIND_DIGEST: InputKind
INPUT_KIND_HASH_AS_MESSAGE: InputKind
SIGNATURE_ENCODING_UNSPECIFIED: SignatureEncoding
SIGNATURE_ENCODING_RAW_RS: SignatureEncoding
SIGNATURE_ENCODING_DER_STRICT: SignatureEncoding
SIGNATURE_ENCODING_DER_LAX: SignatureEncoding
SIGNATURE_ENCODING_RAW_RSV: SignatureEncoding
SIGNATURE_ENCODING_RAW_RS_KEY: SignatureEncoding
KEY_ENCODING_UNSPECIFIED: KeyEncoding
KEY_ENCODING_RAW_XY: KeyEncoding
KEY_ENCODING_SEC1_UNCOMPRESSED: KeyEncoding
KEY_ENCODING_SEC1_COMPRESSED: KeyEncoding
KEY_ENCODING_SPKI: KeyEncoding
KEY_ENCODING_IN_SIGNATURE: KeyEncoding
KEY_ENCODING_INDEX: KeyEncoding
LOW_S_UNSPECIFIED: LowS
LOW_S_ACCEPT_ANY: LowS
LOW_S_REQUIRE: LowS
HASH_UNSPECIFIED: Hash
HASH_SM3: Hash
HASH_SHA256: Hash
HASH_SHA256D: Hash
HASH_KECCAK256: Hash
HASH_SHA3_256: Hash
PRIORITY_UNSPECIFIED: Priority
PRIORITY_CONSENSUS: Priority
PRIORITY_BLOCK: Priority
PRIORITY_POOL: Priority
PRIORITY_BULK: Priority
PROBLEM_CODE_UNDETERMINED: ProblemCode
PROBLEM_CODE_OUT_OF_RANGE: ProblemCode
PROBLEM_CODE_HIGH_S: ProblemCode
PROBLEM_CODE_SIGNATURE_LENGTH: ProblemCode
PROBLEM_CODE_SIGNATURE_DER: ProblemCode
PROBLEM_CODE_RECOVERY_ID: ProblemCode
PROBLEM_CODE_KEY_LENGTH: ProblemCode
PROBLEM_CODE_KEY_PREFIX: ProblemCode
PROBLEM_CODE_KEY_RANGE: ProblemCode
PROBLEM_CODE_KEY_NOT_ON_CURVE: ProblemCode
PROBLEM_CODE_KEY_SPKI: ProblemCode
PROBLEM_CODE_KEY_INDEX: ProblemCode
PROBLEM_CODE_INPUT_LENGTH: ProblemCode

class Scheme(_message.Message):
    __slots__ = ("algorithm", "input_kind", "signature_encoding", "key_encoding", "low_s", "hash", "sm2_user_id", "digest_bytes", "plugin")
    ALGORITHM_FIELD_NUMBER: _ClassVar[int]
    INPUT_KIND_FIELD_NUMBER: _ClassVar[int]
    SIGNATURE_ENCODING_FIELD_NUMBER: _ClassVar[int]
    KEY_ENCODING_FIELD_NUMBER: _ClassVar[int]
    LOW_S_FIELD_NUMBER: _ClassVar[int]
    HASH_FIELD_NUMBER: _ClassVar[int]
    SM2_USER_ID_FIELD_NUMBER: _ClassVar[int]
    DIGEST_BYTES_FIELD_NUMBER: _ClassVar[int]
    PLUGIN_FIELD_NUMBER: _ClassVar[int]
    algorithm: Algorithm
    input_kind: InputKind
    signature_encoding: SignatureEncoding
    key_encoding: KeyEncoding
    low_s: LowS
    hash: Hash
    sm2_user_id: bytes
    digest_bytes: int
    plugin: str
    def __init__(self, algorithm: _Optional[_Union[Algorithm, str]] = ..., input_kind: _Optional[_Union[InputKind, str]] = ..., signature_encoding: _Optional[_Union[SignatureEncoding, str]] = ..., key_encoding: _Optional[_Union[KeyEncoding, str]] = ..., low_s: _Optional[_Union[LowS, str]] = ..., hash: _Optional[_Union[Hash, str]] = ..., sm2_user_id: _Optional[bytes] = ..., digest_bytes: _Optional[int] = ..., plugin: _Optional[str] = ...) -> None: ...

class Column(_message.Message):
    __slots__ = ("data", "offsets", "shared_data", "shared_offsets")
    DATA_FIELD_NUMBER: _ClassVar[int]
    OFFSETS_FIELD_NUMBER: _ClassVar[int]
    SHARED_DATA_FIELD_NUMBER: _ClassVar[int]
    SHARED_OFFSETS_FIELD_NUMBER: _ClassVar[int]
    data: bytes
    offsets: bytes
    shared_data: SharedBytes
    shared_offsets: SharedBytes
    def __init__(self, data: _Optional[bytes] = ..., offsets: _Optional[bytes] = ..., shared_data: _Optional[_Union[SharedBytes, _Mapping]] = ..., shared_offsets: _Optional[_Union[SharedBytes, _Mapping]] = ...) -> None: ...

class SharedBytes(_message.Message):
    __slots__ = ("region", "offset", "bytes")
    REGION_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    region: int
    offset: int
    bytes: int
    def __init__(self, region: _Optional[int] = ..., offset: _Optional[int] = ..., bytes: _Optional[int] = ...) -> None: ...

class SharedMemoryRequest(_message.Message):
    __slots__ = ("register_bytes", "unregister_region")
    REGISTER_BYTES_FIELD_NUMBER: _ClassVar[int]
    UNREGISTER_REGION_FIELD_NUMBER: _ClassVar[int]
    register_bytes: int
    unregister_region: int
    def __init__(self, register_bytes: _Optional[int] = ..., unregister_region: _Optional[int] = ...) -> None: ...

class SharedMemoryAnswer(_message.Message):
    __slots__ = ("region", "code", "message")
    REGION_FIELD_NUMBER: _ClassVar[int]
    CODE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    region: int
    code: int
    message: str
    def __init__(self, region: _Optional[int] = ..., code: _Optional[int] = ..., message: _Optional[str] = ...) -> None: ...

class VerifyRequest(_message.Message):
    __slots__ = ("request_id", "items", "scheme", "input", "signature", "key", "key_table", "key_set", "priority")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    SCHEME_FIELD_NUMBER: _ClassVar[int]
    INPUT_FIELD_NUMBER: _ClassVar[int]
    SIGNATURE_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    KEY_TABLE_FIELD_NUMBER: _ClassVar[int]
    KEY_SET_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    request_id: int
    items: int
    scheme: Scheme
    input: Column
    signature: Column
    key: Column
    key_table: bytes
    key_set: int
    priority: Priority
    def __init__(self, request_id: _Optional[int] = ..., items: _Optional[int] = ..., scheme: _Optional[_Union[Scheme, _Mapping]] = ..., input: _Optional[_Union[Column, _Mapping]] = ..., signature: _Optional[_Union[Column, _Mapping]] = ..., key: _Optional[_Union[Column, _Mapping]] = ..., key_table: _Optional[bytes] = ..., key_set: _Optional[int] = ..., priority: _Optional[_Union[Priority, str]] = ...) -> None: ...

class Problems(_message.Message):
    __slots__ = ("index", "code")
    INDEX_FIELD_NUMBER: _ClassVar[int]
    CODE_FIELD_NUMBER: _ClassVar[int]
    index: bytes
    code: bytes
    def __init__(self, index: _Optional[bytes] = ..., code: _Optional[bytes] = ...) -> None: ...

class Timings(_message.Message):
    __slots__ = ("queue_ns", "device_ns", "total_ns")
    QUEUE_NS_FIELD_NUMBER: _ClassVar[int]
    DEVICE_NS_FIELD_NUMBER: _ClassVar[int]
    TOTAL_NS_FIELD_NUMBER: _ClassVar[int]
    queue_ns: int
    device_ns: int
    total_ns: int
    def __init__(self, queue_ns: _Optional[int] = ..., device_ns: _Optional[int] = ..., total_ns: _Optional[int] = ...) -> None: ...

class Failure(_message.Message):
    __slots__ = ("code", "message", "retry_after_ms")
    CODE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    RETRY_AFTER_MS_FIELD_NUMBER: _ClassVar[int]
    code: int
    message: str
    retry_after_ms: int
    def __init__(self, code: _Optional[int] = ..., message: _Optional[str] = ..., retry_after_ms: _Optional[int] = ...) -> None: ...

class VerifyResponse(_message.Message):
    __slots__ = ("request_id", "items", "valid", "decided", "problems", "served_by", "device", "timings", "failure", "columns_digest")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    VALID_FIELD_NUMBER: _ClassVar[int]
    DECIDED_FIELD_NUMBER: _ClassVar[int]
    PROBLEMS_FIELD_NUMBER: _ClassVar[int]
    SERVED_BY_FIELD_NUMBER: _ClassVar[int]
    DEVICE_FIELD_NUMBER: _ClassVar[int]
    TIMINGS_FIELD_NUMBER: _ClassVar[int]
    FAILURE_FIELD_NUMBER: _ClassVar[int]
    COLUMNS_DIGEST_FIELD_NUMBER: _ClassVar[int]
    request_id: int
    items: int
    valid: bytes
    decided: bytes
    problems: Problems
    served_by: str
    device: str
    timings: Timings
    failure: Failure
    columns_digest: bytes
    def __init__(self, request_id: _Optional[int] = ..., items: _Optional[int] = ..., valid: _Optional[bytes] = ..., decided: _Optional[bytes] = ..., problems: _Optional[_Union[Problems, _Mapping]] = ..., served_by: _Optional[str] = ..., device: _Optional[str] = ..., timings: _Optional[_Union[Timings, _Mapping]] = ..., failure: _Optional[_Union[Failure, _Mapping]] = ..., columns_digest: _Optional[bytes] = ...) -> None: ...

class RecoverRequest(_message.Message):
    __slots__ = ("request_id", "items", "scheme", "input", "signature", "address_hash", "priority")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    SCHEME_FIELD_NUMBER: _ClassVar[int]
    INPUT_FIELD_NUMBER: _ClassVar[int]
    SIGNATURE_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_HASH_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    request_id: int
    items: int
    scheme: Scheme
    input: Column
    signature: Column
    address_hash: Hash
    priority: Priority
    def __init__(self, request_id: _Optional[int] = ..., items: _Optional[int] = ..., scheme: _Optional[_Union[Scheme, _Mapping]] = ..., input: _Optional[_Union[Column, _Mapping]] = ..., signature: _Optional[_Union[Column, _Mapping]] = ..., address_hash: _Optional[_Union[Hash, str]] = ..., priority: _Optional[_Union[Priority, str]] = ...) -> None: ...

class RecoverResponse(_message.Message):
    __slots__ = ("request_id", "items", "valid", "decided", "problems", "keys", "addresses", "served_by", "device", "timings", "columns_digest")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    VALID_FIELD_NUMBER: _ClassVar[int]
    DECIDED_FIELD_NUMBER: _ClassVar[int]
    PROBLEMS_FIELD_NUMBER: _ClassVar[int]
    KEYS_FIELD_NUMBER: _ClassVar[int]
    ADDRESSES_FIELD_NUMBER: _ClassVar[int]
    SERVED_BY_FIELD_NUMBER: _ClassVar[int]
    DEVICE_FIELD_NUMBER: _ClassVar[int]
    TIMINGS_FIELD_NUMBER: _ClassVar[int]
    COLUMNS_DIGEST_FIELD_NUMBER: _ClassVar[int]
    request_id: int
    items: int
    valid: bytes
    decided: bytes
    problems: Problems
    keys: bytes
    addresses: bytes
    served_by: str
    device: str
    timings: Timings
    columns_digest: bytes
    def __init__(self, request_id: _Optional[int] = ..., items: _Optional[int] = ..., valid: _Optional[bytes] = ..., decided: _Optional[bytes] = ..., problems: _Optional[_Union[Problems, _Mapping]] = ..., keys: _Optional[bytes] = ..., addresses: _Optional[bytes] = ..., served_by: _Optional[str] = ..., device: _Optional[str] = ..., timings: _Optional[_Union[Timings, _Mapping]] = ..., columns_digest: _Optional[bytes] = ...) -> None: ...

class DigestRequest(_message.Message):
    __slots__ = ("request_id", "items", "hash", "input", "priority")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    HASH_FIELD_NUMBER: _ClassVar[int]
    INPUT_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    request_id: int
    items: int
    hash: Hash
    input: Column
    priority: Priority
    def __init__(self, request_id: _Optional[int] = ..., items: _Optional[int] = ..., hash: _Optional[_Union[Hash, str]] = ..., input: _Optional[_Union[Column, _Mapping]] = ..., priority: _Optional[_Union[Priority, str]] = ...) -> None: ...

class DigestResponse(_message.Message):
    __slots__ = ("request_id", "items", "decided", "digests", "served_by", "device", "timings", "columns_digest")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    DECIDED_FIELD_NUMBER: _ClassVar[int]
    DIGESTS_FIELD_NUMBER: _ClassVar[int]
    SERVED_BY_FIELD_NUMBER: _ClassVar[int]
    DEVICE_FIELD_NUMBER: _ClassVar[int]
    TIMINGS_FIELD_NUMBER: _ClassVar[int]
    COLUMNS_DIGEST_FIELD_NUMBER: _ClassVar[int]
    request_id: int
    items: int
    decided: bytes
    digests: bytes
    served_by: str
    device: str
    timings: Timings
    columns_digest: bytes
    def __init__(self, request_id: _Optional[int] = ..., items: _Optional[int] = ..., decided: _Optional[bytes] = ..., digests: _Optional[bytes] = ..., served_by: _Optional[str] = ..., device: _Optional[str] = ..., timings: _Optional[_Union[Timings, _Mapping]] = ..., columns_digest: _Optional[bytes] = ...) -> None: ...

class RegisterKeysRequest(_message.Message):
    __slots__ = ("algorithm", "key_encoding", "keys", "items")
    ALGORITHM_FIELD_NUMBER: _ClassVar[int]
    KEY_ENCODING_FIELD_NUMBER: _ClassVar[int]
    KEYS_FIELD_NUMBER: _ClassVar[int]
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    algorithm: Algorithm
    key_encoding: KeyEncoding
    keys: Column
    items: int
    def __init__(self, algorithm: _Optional[_Union[Algorithm, str]] = ..., key_encoding: _Optional[_Union[KeyEncoding, str]] = ..., keys: _Optional[_Union[Column, _Mapping]] = ..., items: _Optional[int] = ...) -> None: ...

class RegisterKeysResponse(_message.Message):
    __slots__ = ("key_set", "items", "problems")
    KEY_SET_FIELD_NUMBER: _ClassVar[int]
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    PROBLEMS_FIELD_NUMBER: _ClassVar[int]
    key_set: int
    items: int
    problems: Problems
    def __init__(self, key_set: _Optional[int] = ..., items: _Optional[int] = ..., problems: _Optional[_Union[Problems, _Mapping]] = ...) -> None: ...

class ReleaseKeysRequest(_message.Message):
    __slots__ = ("key_set",)
    KEY_SET_FIELD_NUMBER: _ClassVar[int]
    key_set: int
    def __init__(self, key_set: _Optional[int] = ...) -> None: ...

class ReleaseKeysResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetLimitsRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetLimitsResponse(_message.Message):
    __slots__ = ("max_items", "max_batch_bytes", "max_message_bytes", "preferred_items", "operations")
    MAX_ITEMS_FIELD_NUMBER: _ClassVar[int]
    MAX_BATCH_BYTES_FIELD_NUMBER: _ClassVar[int]
    MAX_MESSAGE_BYTES_FIELD_NUMBER: _ClassVar[int]
    PREFERRED_ITEMS_FIELD_NUMBER: _ClassVar[int]
    OPERATIONS_FIELD_NUMBER: _ClassVar[int]
    max_items: int
    max_batch_bytes: int
    max_message_bytes: int
    preferred_items: int
    operations: _containers.RepeatedCompositeFieldContainer[ServedOperation]
    def __init__(self, max_items: _Optional[int] = ..., max_batch_bytes: _Optional[int] = ..., max_message_bytes: _Optional[int] = ..., preferred_items: _Optional[int] = ..., operations: _Optional[_Iterable[_Union[ServedOperation, _Mapping]]] = ...) -> None: ...

class ServedOperation(_message.Message):
    __slots__ = ("operation", "algorithm", "served_by", "digest", "devices")
    OPERATION_FIELD_NUMBER: _ClassVar[int]
    ALGORITHM_FIELD_NUMBER: _ClassVar[int]
    SERVED_BY_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    DEVICES_FIELD_NUMBER: _ClassVar[int]
    operation: str
    algorithm: str
    served_by: str
    digest: str
    devices: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, operation: _Optional[str] = ..., algorithm: _Optional[str] = ..., served_by: _Optional[str] = ..., digest: _Optional[str] = ..., devices: _Optional[_Iterable[str]] = ...) -> None: ...
