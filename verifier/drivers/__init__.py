"""Devices. The only package that imports cuda."""

from __future__ import annotations

from verifier.drivers._abi import ABI_VERSION, BatchStruct, ColumnStruct, PluginInfo
from verifier.drivers._devices import Device, list_devices, open_driver, probe_devices
from verifier.drivers._driver import Buffer, DeviceInfo, Driver, Event, Function, Image, Module, Stream

__all__ = [
    "ABI_VERSION",
    "BatchStruct",
    "Buffer",
    "ColumnStruct",
    "Device",
    "DeviceInfo",
    "Driver",
    "Event",
    "Function",
    "Image",
    "Module",
    "PluginInfo",
    "Stream",
    "list_devices",
    "open_driver",
    "probe_devices",
]
