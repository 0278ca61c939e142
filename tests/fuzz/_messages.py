"""Messages of any protobuf type, from its descriptor: whatever the wire can carry, and near misses of good ones."""

from __future__ import annotations

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from hypothesis import strategies as st

_RANGES = {
    FieldDescriptor.TYPE_UINT32: (0, (1 << 32) - 1),
    FieldDescriptor.TYPE_UINT64: (0, (1 << 64) - 1),
    FieldDescriptor.TYPE_INT32: (-(1 << 31), (1 << 31) - 1),
    FieldDescriptor.TYPE_INT64: (-(1 << 63), (1 << 63) - 1),
}
_DEPTH = 4


def _integers(least: int, most: int) -> st.SearchStrategy[int]:
    """Small numbers, the ends of the range, and any."""
    telling = (0, 1, 2, 31, 32, 33, 64, 1 << 16, 1 << 20, 1 << 24, (1 << 31) - 1, least, most)
    return st.one_of(st.sampled_from([n for n in telling if least <= n <= most]), st.integers(least, most))


def _bytes() -> st.SearchStrategy[bytes]:
    """Lengths that a column may have, offsets that may be right, and any."""
    whole = st.integers(0, 8).flatmap(
        lambda items: st.sampled_from([1, 4, 12, 16, 32, 33, 64, 65]).flatmap(
            lambda width: st.binary(min_size=items * width, max_size=items * width)
        )
    )
    offsets = st.lists(st.integers(0, 80), max_size=9).map(
        lambda ends: b"".join(n.to_bytes(4, "little") for n in [0, *sorted(ends)])
    )
    return st.one_of(whole, offsets, st.binary(max_size=300))


def _texts(words: tuple[str, ...]) -> st.SearchStrategy[str]:
    return st.one_of(st.sampled_from(words), st.text(st.characters(exclude_categories=("Cs",)), max_size=40))


def _value(field: FieldDescriptor, words: tuple[str, ...], depth: int) -> st.SearchStrategy:
    if field.type == FieldDescriptor.TYPE_MESSAGE:
        return messages(field.message_type, words, depth - 1)
    if field.type == FieldDescriptor.TYPE_ENUM:
        # Numbers that the contract has not, too: the wire carries any.
        return st.one_of(st.sampled_from([v.number for v in field.enum_type.values]), st.integers(-2, 70))
    if field.type in _RANGES:
        return _integers(*_RANGES[field.type])
    if field.type == FieldDescriptor.TYPE_BOOL:
        return st.booleans()
    if field.type in (FieldDescriptor.TYPE_DOUBLE, FieldDescriptor.TYPE_FLOAT):
        return st.floats()
    if field.type == FieldDescriptor.TYPE_BYTES:
        return _bytes()
    assert field.type == FieldDescriptor.TYPE_STRING, f"no strategy for {field.full_name}"
    return _texts(words)


def _fill(message: Message, field: FieldDescriptor, value) -> None:
    if field.type == FieldDescriptor.TYPE_MESSAGE and field.message_type.GetOptions().map_entry:
        for entry in value:
            getattr(message, field.name)[entry.key] = entry.value
    elif field.is_repeated:
        getattr(message, field.name).extend(value)
    elif field.type == FieldDescriptor.TYPE_MESSAGE:
        getattr(message, field.name).CopyFrom(value)
    else:
        setattr(message, field.name, value)


def messages(
    descriptor: Descriptor, words: tuple[str, ...] = ("",), depth: int = _DEPTH
) -> st.SearchStrategy[Message]:
    """Any subset of the fields with any values. `words` are texts that mean something to who reads them."""
    kind = GetMessageClass(descriptor)
    fields = [field for field in descriptor.fields if depth > 0 or field.type != FieldDescriptor.TYPE_MESSAGE]
    if not fields:
        return st.just(kind())

    def strategy(field: FieldDescriptor) -> st.SearchStrategy:
        one = _value(field, words, depth)
        return st.lists(one, max_size=4) if field.is_repeated else one

    @st.composite
    def build(draw) -> Message:
        message = kind()
        for field in draw(st.lists(st.sampled_from(fields), unique_by=lambda f: f.number, max_size=len(fields))):
            _fill(message, field, draw(strategy(field)))
        return message

    return build()


def near(good: Message, words: tuple[str, ...] = ("",)) -> st.SearchStrategy[Message]:
    """A good message with some of its fields, or of the fields of its parts, made anything."""

    if not good.DESCRIPTOR.fields:
        return st.just(good)

    @st.composite
    def build(draw) -> Message:
        message = type(good)()
        message.CopyFrom(good)
        for _ in range(draw(st.integers(0, 2))):
            target = message
            while True:
                field = draw(st.sampled_from(list(target.DESCRIPTOR.fields)))
                inside = field.type == FieldDescriptor.TYPE_MESSAGE and not field.is_repeated
                if inside and target.HasField(field.name) and draw(st.booleans()):
                    target = getattr(target, field.name)
                    continue
                break
            target.ClearField(field.name)
            if draw(st.booleans()):
                one = _value(field, words, 2)
                _fill(target, field, draw(st.lists(one, max_size=3) if field.is_repeated else one))
        return message

    return build()


def wires(good: Message, words: tuple[str, ...] = ("",)) -> st.SearchStrategy[bytes]:
    """What may come over the wire: messages, near misses, good ones with bytes changed or missing, and noise."""

    @st.composite
    def damaged(draw) -> bytes:
        data = bytearray(good.SerializeToString())
        for _ in range(draw(st.integers(1, 4))):
            if data:
                data[draw(st.integers(0, len(data) - 1))] = draw(st.integers(0, 255))
        return bytes(data[: draw(st.integers(0, len(data)))])

    serialize = type(good).SerializeToString
    return st.one_of(
        near(good, words).map(serialize),
        messages(good.DESCRIPTOR, words).map(serialize),
        damaged(),
        st.binary(max_size=100),
    )
