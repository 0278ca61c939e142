"""Devices. The only package that imports cuda."""
