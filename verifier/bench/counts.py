"""How many field operations an item takes, counted by the kernel source itself.

A build for the CPU with COUNT_OPERATIONS counts what is asked of the fields (plugins/common/counting.cuh). It runs
with the GPU's window for the generator, so that the counts are the GPU's: windows are fixed and signed, no addition
depends on data, so that a lane does what a CPU thread does.
"""

from __future__ import annotations

import ctypes
import functools
import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path

import numpy as np

from verifier.bench.enrolled import enroll_keys, enrolled_columns
from verifier.bench.rig import Rig, columns_of
from verifier.bench.signatures import make_signatures
from verifier.errors import BackendError
from verifier.manifest import Choice
from verifier.model import Column
from verifier.workers import WorkerOptions

__all__ = ["COUNTED", "Counted", "Counts", "count", "count_all", "write_counts", "written_counts"]

WRITTEN = Path(__file__).parent / "counts.json"
ITEMS = 64  # whole groups of those that share an inversion


@dataclass(frozen=True, slots=True)
class Counts:
    """Operations an item, on average. Field operations are modulo p; `additions` is everything linear.

    What inversions are made of is counted among the multiplications and squarings too.
    """

    multiplications: float
    squarings: float
    additions: float
    inversions: float
    order_multiplications: float  # modulo n
    order_inversions: float

    @property
    def products(self) -> float:
        """Multiplications and squarings of the field, the currency of all comparisons."""
        return self.multiplications + self.squarings


@dataclass(frozen=True, slots=True)
class Counted:
    """A case whose operations are counted."""

    case: str
    plugin: str
    operation: str
    algorithm: str
    choice: Choice = field(default_factory=Choice)


COUNTED = (
    Counted("sm2-verify-unknown", "sm2", "verify", "SM2"),
    Counted("sm2-verify-unknown-paper", "sm2", "verify", "SM2", Choice("paper")),
    Counted("sm2-verify-unknown-paper-fermat", "sm2", "verify", "SM2", Choice("paper_fermat")),
    Counted("sm2-verify-unknown-paper-separate", "sm2", "verify", "SM2", Choice("paper_separate")),
    Counted("p256-verify-unknown", "ecdsa", "verify", "ECDSA_P256"),
    Counted("secp256k1-verify-unknown", "ecdsa", "verify", "ECDSA_SECP256K1"),
    Counted("secp256k1-recover", "ecdsa", "recover", "ECDSA_SECP256K1"),
    Counted("sm2-verify-enrolled", "sm2", "verify_enrolled", "SM2"),
    Counted("p256-verify-enrolled", "ecdsa", "verify_enrolled", "ECDSA_P256"),
    Counted("secp256k1-verify-enrolled", "ecdsa", "verify_enrolled", "ECDSA_SECP256K1"),
)

# The windows of a GPU. The generator's table does not change what is counted, so that it is not built.
GPU_WINDOWS: Mapping[str, int | str] = {"WINDOW_G_CPU": 20, "WINDOW_KEY_CPU": 8, "KEY_SLOTS": 16}


def count(
    counted: Counted, plugins: Path, *, defines: Mapping[str, int | str] = GPU_WINDOWS, real_tables: bool = False
) -> Counts:
    """Counts one case on valid signatures with digests as input. With `real_tables` tables are built and the verdicts
    checked. Raises BackendError where one is wrong."""
    with Rig(
        "cpu",
        plugins / counted.plugin,
        plugins / "common",
        slot_bytes=1 << 20,
        choice=counted.choice,
        defines={"COUNT_OPERATIONS": 1, **defines},
        build_state=real_tables,
        options=WorkerOptions(slots=1, slot_bytes=1 << 20, streams=1),
        threads=1,
    ) as rig:
        if not real_tables:
            _fill_state(rig)
        made = make_signatures(counted.algorithm, ITEMS, keys=4)
        columns = columns_of(made)
        if counted.operation == "verify_enrolled":
            columns = enrolled_columns(made, enroll_keys(rig, made))
        if counted.operation == "recover":
            signatures = np.concatenate([made.signatures, made.recovery[:, None]], axis=1)
            columns = {
                "input": columns["input"],
                "signature": Column.fixed("signature", signatures.ravel(), 65, made.items),
            }
        slot = rig.fill(counted.operation, counted.algorithm, columns, made.items)
        before = _read(rig)
        rig.run(slot)
        after = _read(rig)
        if real_tables and not (slot.codes == made.codes).all():
            raise BackendError(f"{counted.case}: a verdict is wrong while operations are counted")
        # Counters are 32 bits wide and may have wrapped.
        return Counts(**{name: (after[name] - before[name]) % (1 << 32) / made.items for name in after})


def count_all(plugins: Path) -> Iterator[tuple[Counted, Counts]]:
    """Counts every case."""
    for counted in COUNTED:
        yield counted, count(counted, plugins)


@functools.cache
def written_counts() -> Mapping[str, Counts]:
    """The counts of the shipped kernels by case, as they are kept in `WRITTEN`; a test counts again."""
    return {case: Counts(**values) for case, values in json.loads(WRITTEN.read_text(encoding="utf-8")).items()}


def write_counts(found: Mapping[str, Counts]) -> None:
    """Keeps counts in `WRITTEN`."""
    text = json.dumps({case: asdict(counts) for case, counts in found.items()}, indent=1)
    WRITTEN.write_text(text + "\n", encoding="utf-8")


def _read(rig: Rig) -> dict[str, int]:
    module = rig.instance.operations[0].stages[0].module  # type: ignore[attr-defined]  # the CPU's functions have it
    return {each.name: module.constant(f"counted_{each.name}") for each in fields(Counts)}


def _fill_state(rig: Rig) -> None:
    """Numbers below every prime in place of points: sums of such never come out as infinity, which would be decided
    by other formulas."""
    size = rig.instance.info.state_bytes
    state = np.frombuffer((ctypes.c_uint8 * size).from_address(rig.instance.state), np.uint8)
    some = np.random.default_rng(1).integers(1, 255, min(size, 1 << 24), dtype=np.uint8)
    for begin in range(0, size, some.size):
        state[begin : begin + some.size] = some[: size - begin]
