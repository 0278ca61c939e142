"""A process that ends instead of reading."""

from __future__ import annotations

import sys


def main(*_fds):
    sys.exit(3)
