"""A process that ends with SIGKILL whenever it reads the row group POISON."""

from __future__ import annotations

import os
import signal

POISON = 3


def main(*fds):
    from node_adapter.ledger import _reader

    verify_group = _reader.verify_group

    def verify_or_die(devices, path, name, digest, row_group):
        if row_group == POISON:
            os.kill(os.getpid(), signal.SIGKILL)
        return verify_group(devices, path, name, digest, row_group)

    _reader.verify_group = verify_or_die
    _reader.main(*fds)
