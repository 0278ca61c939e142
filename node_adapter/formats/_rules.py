"""Bitcoin's rules for scripts by the age of a block."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Rules"]

# Times of blocks of the main net, each in the hours after a rule came into force, when all blocks kept it already.
_SCRIPT_HASH_FROM = 1_333_238_400  # BIP 16, by this time and not by a height
_STRICT_DER_FROM = 1_436_000_000  # block 363,725
_LOCK_TIME_FROM = 1_450_200_000  # block 388,381
_SEQUENCE_FROM = 1_467_800_000  # block 419,328
_NULL_DUMMY_FROM = 1_503_600_000  # block 481,824
_TAPROOT_FROM = 1_636_900_000  # block 709,632


@dataclass(frozen=True, slots=True)
class Rules:
    """Which of the rules hold that were added over time. Those of witnesses do in all blocks: none breaks them."""

    script_hash: bool  # BIP 16; before it a script hash is only compared, and the script behind it does not run
    strict_der: bool  # BIP 66; before it OpenSSL's lax reading was the rule
    lock_time: bool  # BIP 65
    sequence: bool  # BIP 112
    null_dummy: bool  # BIP 147
    taproot: bool  # BIP 341; before it anybody could spend such outputs, and somebody did (block 692,261)

    @classmethod
    def at(cls, time: int) -> Rules:
        """The rules for a block with this time in its header."""
        return cls(
            script_hash=time >= _SCRIPT_HASH_FROM,
            strict_der=time >= _STRICT_DER_FROM,
            lock_time=time >= _LOCK_TIME_FROM,
            sequence=time >= _SEQUENCE_FROM,
            null_dummy=time >= _NULL_DUMMY_FROM,
            taproot=time >= _TAPROOT_FROM,
        )
