"""The two clients under one face, for tests of what they share."""

import asyncio

from node_adapter.client import (
    Algorithm,
    AsyncVerifierClient,
    InputKind,
    KeyEncoding,
    Retry,
    Scheme,
    SignatureEncoding,
    VerifierClient,
)

SCHEME = Scheme(Algorithm.SM2, InputKind.MESSAGE, SignatureEncoding.RAW_RS, KeyEncoding.RAW_XY)


QUICK = Retry(attempts=3, base_s=0.001, cap_s=0.002)


def by_first_byte(items):
    """The message's first byte is the code."""
    return [message[0] for message in items.inputs]


class Blocking:
    """The blocking client behind one call."""

    def __init__(self, target, **options):
        self.client = VerifierClient(target, **options)

    def call(self, method, *arguments, **options):
        return getattr(self.client, method)(*arguments, **options)

    def close(self):
        self.client.close()


class OnLoop:
    """The asyncio client behind the same call, on a loop of its own."""

    def __init__(self, target, **options):
        self.loop = asyncio.new_event_loop()

        async def make():
            return AsyncVerifierClient(target, **options)

        self.client = self.loop.run_until_complete(make())

    def call(self, method, *arguments, **options):
        return self.loop.run_until_complete(getattr(self.client, method)(*arguments, **options))

    def close(self):
        self.loop.run_until_complete(self.client.close())
        self.loop.close()


def batch(codes):
    n = len(codes)
    return [bytes([c]) for c in codes], bytes(64 * n), bytes(64 * n)
