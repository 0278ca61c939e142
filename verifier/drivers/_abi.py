"""The structures of plugins/common/abi.cuh, as the host sees them."""

from __future__ import annotations

import ctypes

__all__ = ["ABI_VERSION", "MAX_INPUTS", "MAX_OUTPUTS", "MAX_PARAMETERS", "BatchStruct", "ColumnStruct", "PluginInfo"]

ABI_VERSION = 1
MAX_INPUTS = 6
MAX_OUTPUTS = 2
MAX_PARAMETERS = 14


class ColumnStruct(ctypes.Structure):
    """`struct Column`: addresses are the device's."""

    _fields_ = (("data", ctypes.c_uint64), ("offsets", ctypes.c_uint64), ("stride", ctypes.c_uint64))


class BatchStruct(ctypes.Structure):
    """`struct Batch`: one launch's view of a batch."""

    _fields_ = (
        ("items", ctypes.c_uint32),
        ("capacity", ctypes.c_uint32),
        ("parameters", ctypes.c_uint32 * MAX_PARAMETERS),
        ("inputs", ColumnStruct * MAX_INPUTS),
        ("constant", ctypes.c_uint64),
        ("constant_bytes", ctypes.c_uint64),
        ("valid", ctypes.c_uint64),
        ("decided", ctypes.c_uint64),
        ("codes", ctypes.c_uint64),
        ("outputs", ctypes.c_uint64 * MAX_OUTPUTS),
        ("output_strides", ctypes.c_uint64 * MAX_OUTPUTS),
        ("state", ctypes.c_uint64),
        ("item_scratch", ctypes.c_uint64),
        ("lane_scratch", ctypes.c_uint64),
    )


class PluginInfo(ctypes.Structure):
    """`struct PluginInfo`: what a built plugin needs, read from its symbol `plugin_info`."""

    _fields_ = (
        ("abi", ctypes.c_uint32),
        ("batch_bytes", ctypes.c_uint32),
        ("state_bytes", ctypes.c_uint64),
        ("scratch_item_bytes", ctypes.c_uint64),
        ("scratch_lane_bytes", ctypes.c_uint64),
    )


assert ctypes.sizeof(BatchStruct) == 304
