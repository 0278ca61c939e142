"""Published transactions, each in a block of its own."""

import json
from pathlib import Path

from node_adapter.formats._bitcoin import Output, double_sha256
from node_adapter.formats.bitcoin import records

CASES = json.loads((Path(__file__).parent / "bitcoin_transactions.json").read_text())["cases"]
LAX_TIME, STRICT_TIME = 1_400_000_000, 1_500_000_000


def read(case, time=None, transaction=None, spent=None):
    data = bytes.fromhex(transaction or case["transaction"])
    time = time or (LAX_TIME if case["lax"] else STRICT_TIME)
    header = bytes(36) + double_sha256(data) + time.to_bytes(4, "little") + bytes(8)
    coins = {
        (bytes.fromhex(name)[::-1], index): Output(amount, bytes.fromhex(script))
        for name, index, script, amount in (spent or case["spent"])
    }
    return next(records(header + b"\1" + data, spent=coins))
