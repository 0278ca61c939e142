"""Settings of the allocator and of channels that big messages need; measured in bench/."""

from __future__ import annotations

import ctypes
import sys

__all__ = ["channel_options", "tune_malloc"]

# Parameters of mallopt(3), from <malloc.h>.
_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -2, -3, -8
_MIB = 1 << 20
_MOST = (1 << 31) - 1  # mallopt takes an int


def tune_malloc() -> bool:
    """Keeps freed memory of big messages in the process: glibc otherwise maps and unmaps each one.

    Kept in two arenas only. Threads come and go, and each of eight arenas a core would keep what one of them once
    used: gigabytes after a hundred swaps of plugins.

    True where the C library took the settings. Call it before threads start.
    """
    if not sys.platform.startswith("linux"):
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:  # musl
        return False
    settings = ((_M_MMAP_THRESHOLD, 1 << 30), (_M_TRIM_THRESHOLD, _MOST), (_M_TOP_PAD, 128 * _MIB), (_M_ARENA_MAX, 2))
    taken = [mallopt(parameter, value) == 1 for parameter, value in settings]
    return all(taken)


def channel_options(max_message_bytes: int, keepalive_s: float, *, share_port: bool = False) -> list[tuple[str, int]]:
    """Options of a server: big frames and windows, limits, and pings that agree with the client's.

    `share_port`: other processes may listen there too, and the system spreads connections over them.
    """
    keepalive_ms = round(keepalive_s * 1000)
    return [
        ("grpc.max_receive_message_length", max_message_bytes),
        ("grpc.max_send_message_length", -1),
        ("grpc.http2.max_frame_size", 16 * _MIB - 1),
        ("grpc.http2.lookahead_bytes", 64 * _MIB),
        ("grpc.http2.bdp_probe", 0),
        ("grpc.http2.write_buffer_size", 16 * _MIB),
        # Otherwise one process a port: a second daemon must fail, not take half of the connections.
        ("grpc.so_reuseport", int(share_port)),
        ("grpc.keepalive_time_ms", keepalive_ms),
        ("grpc.keepalive_timeout_ms", 20_000),
        ("grpc.keepalive_permit_without_calls", 1),
        # Clients may ping twice as often as this daemon does, without calls too, and are not sent away for it.
        ("grpc.http2.min_ping_interval_without_data_ms", keepalive_ms // 2),
        ("grpc.http2.max_ping_strikes", 0),
    ]
