"""Which device: a cost model, measured.

A launch of u units (items, and long inputs by the byte) on a device takes `fixed + u * per_unit` seconds. Both are
kept for each device and operation, measured at start on known answers and moved by an exponentially weighted average
of what later launches took. A batch goes where it is finished first, counting what the device still has to do; a
batch that is worth it is shared so that all its parts finish at the same time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from verifier.drivers import DeviceInfo
from verifier.model import BatchKey

__all__ = ["Cost", "Load", "Router", "Share"]

_WEIGHT = 0.2  # of a new observation
_LEAST_SHARE = 0.05  # a device that would do less of a batch than this is left out of it
_LEAST_UNITS = 1024  # and nothing smaller is given to a second device


@dataclass(slots=True)
class Cost:
    """Seconds of a launch: `fixed + units * per_unit`."""

    fixed: float
    per_unit: float
    measured: bool = False

    def seconds(self, units: float) -> float:
        """What a launch of so many units takes."""
        return self.fixed + units * self.per_unit

    def units(self, seconds: float) -> int:
        """How many units a launch of so many seconds has; 0 where its fixed part is longer."""
        return max(0, int((seconds - self.fixed) / self.per_unit))

    def observe(self, units: int, seconds: float) -> None:
        """Moves the term that dominates a launch of this size."""
        if units * self.per_unit < self.fixed:
            self.fixed += _WEIGHT * (max(seconds - units * self.per_unit, 0.1 * seconds) - self.fixed)
        else:
            self.per_unit += _WEIGHT * (max(seconds - self.fixed, 0.1 * seconds) / units - self.per_unit)


@dataclass(frozen=True, slots=True)
class Load:
    """A device as the router sees it: `busy_s` seconds of work are ahead of a new launch."""

    device: DeviceInfo
    busy_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Share:
    """What one device should get of a batch, and when it would be done, seconds from now."""

    device_id: str
    units: int
    done_s: float


class Router:
    """Guarded by the scheduler's lock."""

    def __init__(self) -> None:
        self._costs: dict[tuple[str, str, str, tuple[int, ...]], Cost] = {}

    def cost(self, device: DeviceInfo, key: BatchKey) -> Cost:
        """The model of a device and operation. With other parameters it begins as what was measured of the operation,
        so that bounds in time hold from the first request on; where nothing was, it is a guess by kind."""
        name = (device.id, key.plugin, key.operation, key.parameters)
        cost = self._costs.get(name)
        if cost is None:
            like = next((c for n, c in self._costs.items() if n[:3] == name[:3] and c.measured), None)
            if like is None:
                return _guess(device)  # and not kept: it is worth less than any measurement that comes
            cost = self._costs[name] = Cost(like.fixed, like.per_unit, measured=True)
        return cost

    def measure(self, device: DeviceInfo, key: BatchKey, small: tuple[int, float], large: tuple[int, float]) -> Cost:
        """Sets a model from two launches, each (units, seconds)."""
        per_unit = max((large[1] - small[1]) / max(large[0] - small[0], 1), 0.05 * large[1] / large[0])
        fixed = max(small[1] - small[0] * per_unit, 0.1 * small[1])
        cost = Cost(fixed, per_unit, measured=True)
        self._costs[device.id, key.plugin, key.operation, key.parameters] = cost
        return cost

    def observe(self, device: DeviceInfo, key: BatchKey, units: int, seconds: float) -> None:
        """Learns from a launch that took `seconds` on the device."""
        if seconds > 0:
            cost = self.cost(device, key)
            cost.observe(units, seconds)
            cost.measured = True
            self._costs[device.id, key.plugin, key.operation, key.parameters] = cost

    def shares(self, key: BatchKey, units: int, loads: Sequence[Load]) -> list[Share]:
        """How `units` are best spread over devices, the one that is done first leading. Empty where `loads` is.

        Solves for the time at which all devices that take part finish together: with rates 1 / per_unit and
        delays busy + fixed, T = (units + sum(delay * rate)) / sum(rate) over the devices whose delay is below T.
        """
        if len(loads) == 1:
            (load,) = loads
            return [Share(load.device.id, units, load.busy_s + self.cost(load.device, key).seconds(units))]
        models = sorted(
            (
                (load.busy_s + cost.fixed, cost, load.device.id)
                for load in loads
                for cost in [self.cost(load.device, key)]
            ),
            key=lambda model: (model[0] + units * model[1].per_unit, model[2]),
        )
        if not models:
            return []
        best_delay, best_cost, best_id = models[0]
        alone = Share(best_id, units, best_delay + units * best_cost.per_unit)
        least = max(_LEAST_UNITS, _LEAST_SHARE * units)
        # In that time none of the others would do enough of it to be worth it; most batches end here.
        if all((alone.done_s - delay) / cost.per_unit < least for delay, cost, _ in models[1:]):
            return [alone]
        taking = sorted(models, key=lambda model: model[0])
        while len(taking) > 1:
            rate = sum(1 / cost.per_unit for _, cost, _ in taking)
            done = (units + sum(delay / cost.per_unit for delay, cost, _ in taking)) / rate
            parts = [((done - delay) / cost.per_unit, device_id) for delay, cost, device_id in taking]
            smallest, device_id = min(parts)
            if smallest >= least:
                if done >= alone.done_s:  # the fastest was left out on the way here
                    break
                return [Share(name, round(part), done) for part, name in sorted(parts, reverse=True)]
            taking = [model for model in taking if model[2] != device_id]
        return [alone]

    def preferred_units(self) -> int | None:
        """A launch at which the fixed cost of the fastest device is a sixteenth; None before anything is measured."""
        measured = [cost for cost in self._costs.values() if cost.measured]
        fastest = min(measured, key=lambda cost: cost.per_unit, default=None)
        return None if fastest is None else round(16 * fastest.fixed / fastest.per_unit)

    def knows(self, key: BatchKey, devices: Sequence[DeviceInfo]) -> bool:
        """Whether every one of these devices was measured with this operation."""
        return all(self.cost(device, key).measured for device in devices)

    def rate(self, key: BatchKey, devices: Sequence[DeviceInfo]) -> float:
        """Units a second of these devices together."""
        return sum(1 / self.cost(device, key).per_unit for device in devices)


def _guess(device: DeviceInfo) -> Cost:
    """Before anything is measured: a signature is about 50 us of a CPU core and 40 ns of a big GPU."""
    if device.kind == "cuda":
        return Cost(200e-6, 40e-9 * 132 / max(device.units, 1))
    return Cost(20e-6, 50e-6 / max(device.units, 1))
