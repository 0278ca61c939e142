"""Key bytes in memory that can be overwritten."""

from __future__ import annotations

__all__ = ["Secret"]


class Secret(bytearray):
    """A key under its name. Equal where the names are, so that batches under one key merge and a key can be hashed.

    It is never shown: its text is its length. Whoever made it wipes it when nobody reads it any more.
    """

    __slots__ = ("name",)

    def __init__(self, key: bytes | bytearray | memoryview, name: int) -> None:
        super().__init__(key)
        self.name = name

    def wipe(self) -> None:
        """Overwrites the bytes with zeros, in place."""
        memoryview(self)[:] = bytes(len(self))

    def __hash__(self) -> int:  # type: ignore[override]
        return hash((Secret, self.name))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and self.name == other.name

    def __repr__(self) -> str:
        return f"<Secret of {len(self)} bytes>"

    __str__ = __repr__

    def __reduce__(self) -> tuple[object, ...]:
        return (Secret, (bytes(self), self.name))
