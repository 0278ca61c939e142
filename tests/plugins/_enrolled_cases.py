"""Known answers of enrolled keys: groups that enrol, and what is verified by slot afterwards.

They use the slots that the daemon leaves to them (RESERVED_SLOTS), and one generation. A slot's key is a valid one;
what is no key is refused in either step.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from verifier.keys import RESERVED_SLOTS
from verifier.model import Code

GENERATION = 7
EVERY_ROW = 2**32 - 1
Case = tuple[str, bytes, bytes, bytes, Code]  # name, input, signature, key, code


def le32(*numbers: int) -> bytes:
    return b"".join(number.to_bytes(4, "little") for number in numbers)


def _group(operation: str, algorithm: str, cases: list[Any], **parameters: str | int) -> dict[str, Any]:
    return {"operation": operation, "algorithm": algorithm, "parameters": parameters, "cases": cases}


def _case(name: str, code: Code, **inputs: bytes) -> dict[str, Any]:
    return {"id": name, "inputs": {key: value.hex() for key, value in inputs.items()}, "code": code.name}


def enrolling(algorithm: str, keys: Sequence[bytes], encoded: dict[str, bytes]) -> list[dict[str, Any]]:
    """Enrols `keys`, x || y each, in the slots from 0 on, then those of `encoded`, by their encoding."""
    raw = [(f"key {slot}", slot, GENERATION, key, Code.VALID) for slot, key in enumerate(keys)]
    good = keys[0]
    raw += [
        ("key is (0, 0)", RESERVED_SLOTS - 1, GENERATION, bytes(64), Code.KEY_NOT_ON_CURVE),
        ("key is all ones", RESERVED_SLOTS - 1, GENERATION, b"\xff" * 64, Code.KEY_RANGE),
        ("key of 63 bytes", RESERVED_SLOTS - 1, GENERATION, good[1:], Code.KEY_LENGTH),
        ("no such slot", 2**32 - 1, GENERATION, good, Code.KEY_INDEX),
        ("generation 0", RESERVED_SLOTS - 1, 0, good, Code.KEY_INDEX),
    ]
    batches = {"RAW_XY": raw}
    for slot, (encoding, key) in enumerate(encoded.items(), len(keys)):
        batches[encoding] = [(f"key {slot}", slot, GENERATION, key, Code.VALID)]
    assert len(keys) + len(encoded) < RESERVED_SLOTS
    groups = []
    for operation, column, tail in (("tabulate", "row", (EVERY_ROW,)), ("enroll", "slot", ())):
        for encoding, rows in batches.items():
            cases = [
                _case(name, code, **{column: le32(slot, generation, *tail), "key": key})
                for name, slot, generation, key, code in rows
            ]
            if operation == "tabulate" and encoding == "RAW_XY":
                cases.append(
                    _case("no such row", Code.KEY_INDEX, row=le32(RESERVED_SLOTS - 1, GENERATION, 64), key=good)
                )
            groups.append(_group(operation, algorithm, cases, key_encoding=encoding))
    return groups


def enrolled(
    algorithm: str,
    keys: Sequence[bytes],
    cases: Iterable[Case],
    constant: bytes | None = None,
    **parameters: str | int,
) -> dict[str, Any]:
    """Those of `cases` whose key is among `keys`, by slot, and what slots refuse."""
    rows = [
        (name, data, signature, le32(keys.index(key), GENERATION), code)
        for name, data, signature, key, code in cases
        if key in keys
    ]
    _, data, signature, slot, _ = next(row for row in rows if row[4] is Code.VALID)
    rows += [
        ("an empty slot", data, signature, le32(RESERVED_SLOTS - 1, GENERATION), Code.KEY_INDEX),
        ("no such slot", data, signature, le32(2**32 - 1, GENERATION), Code.KEY_INDEX),
        ("another generation", data, signature, slot[:4] + le32(GENERATION + 1), Code.KEY_INDEX),
        ("a slot of 7 bytes", data, signature, slot[:7], Code.KEY_LENGTH),
    ]
    made = [
        _case(name, code, input=data, signature=signature, slot=slot) for name, data, signature, slot, code in rows
    ]
    group = _group("verify_enrolled", algorithm, made, **parameters)
    return group if constant is None else {**group, "constant": constant.hex()}
