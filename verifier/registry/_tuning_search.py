"""The search for a plugin's fastest choice on one device: every variant first, then one tunable after the other.

Values of tunables are tried with the best variant only, and each tunable is settled before the next: so many
measurements as there are variants and values, not their product.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass

from verifier.manifest import DEFAULT, Choice, Manifest, kind_of
from verifier.registry._providers import usable_variants

__all__ = ["LEAST_GAIN", "Found", "Rates", "search"]

LEAST_GAIN = 1.02  # what a choice must be faster by: less is noise, and the default is what was tested most

BASE = Choice()

Rates = Mapping[str, float]  # items a second, by operation id


@dataclass(frozen=True)
class Found:
    """What the search came to. `tried` has every choice measured, None where it failed or gave a wrong answer."""

    choice: Choice
    base: Choice  # the default
    tried: dict[Choice, Rates | None]

    @property
    def rates(self) -> Rates:
        """Of the choice."""
        return self.tried[self.choice] or {}

    @property
    def default_rates(self) -> Rates:
        """Of the default."""
        return self.tried[self.base] or {}

    def gain(self, choice: Choice) -> float | None:
        """How many times as fast as the default, over all operations; None where it failed."""
        rates = self.tried[choice]
        return _gain(rates, self.tried[self.base], ()) if rates else None

    def fastest(self, operation: str) -> Choice:
        """The choice that one operation alone ran fastest with."""
        measured = {choice: rates[operation] for choice, rates in self.tried.items() if rates and operation in rates}
        return max(measured, key=lambda choice: measured[choice], default=self.choice)


def _turns(
    manifest: Manifest, target: str, base: Choice
) -> Generator[tuple[list[Choice], tuple[str, ...]], Choice, None]:
    """What to try in turn on a kind of device, and the operations that it matters to (none named: all). It is sent
    what was best so far."""
    kind = kind_of(target)
    variants = usable_variants(manifest, target)
    best = yield [Choice(name, base.tunables) for name in (DEFAULT, *variants)], ()
    given = dict(base.tunables)
    for name, tunable in manifest.tunables.items():
        matters = kind in tunable.targets and (not tunable.variants or best.variant in tunable.variants)
        if name in given or not tunable.measured or not matters:
            continue
        chosen = dict(best.tunables)
        choices = [manifest.choice(best.variant, {**chosen, name: value}) for value in tunable.values]
        best = yield choices, tunable.operations


def search(
    manifest: Manifest,
    target: str,
    measure: Callable[[Choice], Rates | None],
    *,
    base: Choice = BASE,
    prepare: Callable[[Sequence[Choice]], None] = lambda _: None,
    in_time: Callable[[], bool] = lambda: True,
) -> Found:
    """Measures and chooses. The tunables of `base` are given and not searched; with them alone it is the default.

    `measure` gives a choice's rates, or None where it must not be used. `prepare` is told what comes next, so that it
    can be built at once. Once `in_time` is false nothing more is measured, but for the default, which always is.
    """
    tried: dict[Choice, Rates | None] = {base: measure(base)}
    best = base
    turns = _turns(manifest, target, base)
    choices, operations = next(turns)
    while True:
        fresh = [choice for choice in choices if choice not in tried]
        if fresh and in_time():
            prepare(fresh)
        for choice in fresh:
            if not in_time():
                return Found(best, base, tried)
            tried[choice] = measure(choice)
        for choice in choices:
            if _gain(tried[choice], tried[best], operations) > LEAST_GAIN:
                best = choice
        try:
            choices, operations = turns.send(best)
        except StopIteration:
            return Found(best, base, tried)


def _gain(rates: Rates | None, than: Rates | None, operations: Sequence[str]) -> float:
    """How much faster, as the geometric mean over operations; 0 where there is nothing to use, infinite where there
    was nothing before."""
    if not rates:
        return 0.0
    if not than:
        return math.inf
    common = [name for name in rates if name in than and (not operations or name in operations)]
    if not common:
        return 1.0
    return math.exp(math.fsum(math.log(rates[name] / than[name]) for name in common) / len(common))
