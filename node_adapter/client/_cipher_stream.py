"""A message on its way through the daemon in chunks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from types import TracebackType
from typing import Any

import grpc

from node_adapter.client._cipher_scheme import pb
from node_adapter.client._transport import failure
from node_adapter.errors import AnswerError

__all__ = ["CipherStream"]


class CipherStream:
    """Iterates over a message's bytes as they come. Use it in a `with` statement, or take it to its end.

    At the end `tag` is that of an encryption in GCM, and `authentic` says whether the tag of a decryption was right:
    where it is not, no data came. Raises what the source of the chunks raises, and what the daemon answers.
    """

    def __init__(self, call: Any, begin: Any, chunks: Iterable[bytes], timeout_s: float | None, late: str) -> None:
        self.tag = b""
        self.authentic = False
        self.served_by = ""
        self.device = ""
        self._source_error: Exception | None = None
        self._late = late
        self._ended = False
        self._call = call(self._requests(begin, chunks), timeout=timeout_s, wait_for_ready=True)

    def _requests(self, begin: Any, chunks: Iterable[bytes]) -> Iterator[Any]:
        yield pb.TransformStreamRequest(begin=begin)
        try:
            for chunk in chunks:
                yield pb.TransformStreamRequest(data=chunk)
        except Exception as error:  # raised again where the stream is read
            self._source_error = error
            raise
        yield pb.TransformStreamRequest(last=True)

    def __iter__(self) -> Iterator[bytes]:
        try:
            for answer in self._call:
                if answer.last:
                    self._ended = True
                    self.tag, self.authentic = answer.tag, answer.authentic
                    self.served_by, self.device = answer.served_by, answer.device
                if answer.data:
                    yield answer.data
        except grpc.RpcError as error:
            if self._source_error is not None:
                raise self._source_error from None
            raise failure(error.code(), error.details() or "", self._late) from None
        if not self._ended:
            raise AnswerError("the daemon ended the stream before the message's last part")

    def close(self) -> None:
        """Gives the message up, unless it is at its end."""
        self._call.cancel()

    def __enter__(self) -> CipherStream:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
