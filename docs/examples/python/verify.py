"""Verifies SM2 signatures through a daemon:

    python verify.py [--ca FILE] [--cert FILE --key FILE] [--server-name NAME] TARGET < items.json

items.json is [{"message": "hex", "signature": "hex, DER", "key": "hex, x || y"}, ...]; one verdict a line comes out,
and the status is 1 where nobody answered.
--ca: speak TLS with a daemon whose certificate this authority signed; --cert and --key: show one's own.
"""

import argparse
import json
import sys
from pathlib import Path

import grpc

from node_adapter.client import (
    Algorithm,
    InputKind,
    KeyEncoding,
    Priority,
    Scheme,
    SignatureEncoding,
    VerifierClient,
)
from node_adapter.errors import AdapterError

# What this chain signs, in the contract's words.
SCHEME = Scheme(Algorithm.SM2, InputKind.MESSAGE, SignatureEncoding.DER_STRICT, KeyEncoding.RAW_XY)


def main() -> int:
    """Reads items, prints verdicts."""
    parser = argparse.ArgumentParser(description="Verifies SM2 signatures through a daemon.")
    parser.add_argument("--ca", type=Path)
    parser.add_argument("--cert", type=Path)
    parser.add_argument("--key", type=Path)
    parser.add_argument("--server-name", default="", help="whom the daemon's certificate is for")
    parser.add_argument("target", help="host:port, or several daemons as ipv4:a:1,b:1")
    options = parser.parse_args()
    credentials = None
    if options.ca:
        own = [path.read_bytes() if path else None for path in (options.key, options.cert)]
        credentials = grpc.ssl_channel_credentials(options.ca.read_bytes(), *own)

    items = json.load(sys.stdin)
    messages, signatures, keys = (
        [bytes.fromhex(item[name]) for item in items] for name in ("message", "signature", "key")
    )
    with VerifierClient(options.target, credentials=credentials, server_name=options.server_name) as client:
        try:
            verdicts = client.verify(
                SCHEME, messages, signatures, keys, priority=Priority.BLOCK, allow_undecided=True
            )
        except AdapterError as error:
            print(f"no verdicts: {error}", file=sys.stderr)
            return 1
    for valid, decided in zip(verdicts.valid, verdicts.decided, strict=True):
        # An item that is not decided is not invalid: verify it again, here or elsewhere.
        print("undecided" if not decided else "valid" if valid else "invalid")
    for failure in verdicts.failures:
        print(f"undecided: {failure}", file=sys.stderr)
    print(f"served by {', '.join(verdicts.served_by) or 'nobody'}", file=sys.stderr)
    return 1 if verdicts.failures else 0


if __name__ == "__main__":
    sys.exit(main())
