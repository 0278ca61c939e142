"""What does eight items at a time, the plugin's own lanes or a provider's, and the source item by item agree bit for
bit, in batches of every size and mixture.

The known answers, edges, encodings and Wycheproof run so too: the places `lanes` and `provider` of the other tests.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import pytest
from _answers import PLUGINS, provided
from _build import daemons_build
from _ecdsa_cases import chosen as chosen_ecdsa
from _lanes import EIGHT, ONE_BY_ONE
from _reference import P256, SECP256K1, SM2, Curve
from _sm2_cases import N, chosen, exceptional

from verifier.bench.enrolled import enroll_keys, enrolled_columns
from verifier.bench.rig import Rig, columns_of
from verifier.bench.signatures import FAULTS, SignatureSet, make_signatures
from verifier.manifest import Choice
from verifier.model import Code, Column

sys.path.insert(0, str(Path(__file__).parents[1] / "differential"))
from _items import encoded, raw, sm2_messages

PLUGIN_OF = {"SM2": "sm2", "ECDSA_P256": "ecdsa", "ECDSA_SECP256K1": "ecdsa"}
Pair = tuple[Rig, Rig]


def rig_of(name: str, choice: Choice, defines: Mapping[str, int]) -> Rig:
    """A plugin on two threads of the CPU."""
    with daemons_build(name, choice, defines):
        return Rig("cpu", PLUGINS / name, PLUGINS / "common", choice=choice, defines=defines, threads=2)


def together(name: str, how: str) -> Rig:
    """Eight items at a time."""
    return rig_of(name, provided(name), {}) if how == "provider" else rig_of(name, Choice(), EIGHT)


@pytest.fixture(scope="module")
def one_by_one() -> Iterator[dict[str, Rig]]:
    """By plugin: its source, item by item."""
    rigs = {name: rig_of(name, Choice(), ONE_BY_ONE) for name in ("sm2", "ecdsa")}
    yield rigs
    for rig in rigs.values():
        rig.close()


@pytest.fixture(scope="module", params=["lanes", "provider"])
def rigs(request, one_by_one) -> Iterator[dict[str, Pair]]:
    """By plugin: item by item, and eight at a time."""
    pairs = {name: (rig, together(name, request.param)) for name, rig in one_by_one.items()}
    yield pairs
    for _, rig in pairs.values():
        rig.close()


def answers(rig: Rig, algorithm: str, columns: dict[str, Column], items: int, parameters=None, constant=b""):
    slot = rig.fill("verify", algorithm, columns, items, parameters, constant)
    rig.run(slot)
    return slot.codes.copy(), slot.valid.copy(), slot.decided.copy()


def agree(pair: Pair, algorithm: str, columns: dict[str, Column], items: int, parameters=None, constant=b""):
    """The codes, where both give the same codes and bitmaps."""
    plain, eight = (answers(rig, algorithm, columns, items, parameters, constant) for rig in pair)
    for ours, theirs in zip(plain, eight, strict=True):
        assert np.array_equal(ours, theirs)
    return eight[0]


@pytest.mark.parametrize("items", [1000, pytest.param(200_000, marks=pytest.mark.long)])
@pytest.mark.parametrize("algorithm", PLUGIN_OF)
@pytest.mark.parametrize("make", [raw, encoded])
def test_random_and_spoilt_items(rigs, algorithm, make, items):
    made = make(algorithm, items, 41, max(0.01, 40 / items))
    codes = agree(rigs[PLUGIN_OF[algorithm]], algorithm, made.columns, items, made.parameters, made.constant)
    assert np.array_equal(codes, made.codes)


@pytest.mark.parametrize("items", [500, pytest.param(2000, marks=pytest.mark.long)])
def test_messages(rigs, items):
    made = sm2_messages(items, 42, 20 / items)
    codes = agree(rigs["sm2"], "SM2", made.columns, items, made.parameters, made.constant)
    assert np.array_equal(codes, made.codes)


@pytest.mark.parametrize("algorithm", PLUGIN_OF)
@pytest.mark.parametrize("items", [1, 2, 3, 4, 5, 7, 8, 9, 12, 31, 32, 33, 100])
def test_lanes_that_are_not_full(rigs, algorithm, items):
    """The last few of a range are padded, or done one by one; each item in turn is the one that is wrong."""
    base = make_signatures(algorithm, items, seed=items, keys=16)
    for wrong in range(min(items, 9)):
        digests = base.digests.copy()
        digests[wrong, 31] ^= 1
        made = SignatureSet(algorithm, digests, base.signatures, base.keys, base.recovery, base.codes, base.faults)
        codes = agree(rigs[PLUGIN_OF[algorithm]], algorithm, columns_of(made), items)
        assert [Code(code) for code in codes] == [
            Code.INVALID if item == wrong else Code.VALID for item in range(items)
        ]


@pytest.mark.parametrize(
    ("items", "share"),
    [(800, 0.3), (1500, 0.7), (3000, 0.97), *(pytest.param(3000, s, marks=pytest.mark.long) for s in (0.3, 0.7))],
)
@pytest.mark.parametrize("algorithm", PLUGIN_OF)
def test_few_undecided_among_many_malformed(rigs, algorithm, items, share):
    made = make_signatures(algorithm, items, seed=5, fault_share=share)
    codes = agree(rigs[PLUGIN_OF[algorithm]], algorithm, columns_of(made), made.items)
    assert np.array_equal(codes, made.codes)


@pytest.mark.parametrize("algorithm", PLUGIN_OF)
def test_enrolled_keys(rigs, algorithm):
    """Their verdicts, whether a library or the tables give them."""
    faults = [name for name in FAULTS if not name.startswith(("key", "x", "negated"))]
    every = make_signatures(algorithm, 2000, seed=6, keys=5, fault_share=0.2, faults=faults)
    pair = rigs[PLUGIN_OF[algorithm]]
    slots = [enroll_keys(rig, every) for rig in pair]
    for items in (1, 6, 7, 8, 15, 100, 2000):
        made, found = every.part(0, items), []
        for rig, slot_of in zip(pair, slots, strict=True):
            slot = rig.fill("verify_enrolled", algorithm, enrolled_columns(made, slot_of[:items]), items)
            rig.run(slot)
            found.append((slot.codes.copy(), slot.valid.copy(), slot.decided.copy()))
        assert np.array_equal(found[1][0], made.codes)
        for ours, theirs in zip(*found, strict=True):
            assert np.array_equal(ours, theirs)


def test_points_at_infinity_are_decided(rigs):
    """s G = -t Q in every lane."""
    good = chosen("plain", 0xD1CE, 77, 78)
    nowhere = chosen("infinity", 0xD1CE, -9 * 0xD1CE % N, 9)
    for places in ([], [0], [3], [7], range(8), range(0, 64, 5)):
        items = [nowhere if place in places else good for place in range(64)]
        columns = {
            name: Column.fixed(name, np.frombuffer(b"".join(values), np.uint8), len(values[0]), 64)
            for name, values in {
                "input": [item.digest for item in items],
                "signature": [item.signature for item in items],
                "key": [item.key_bytes for item in items],
            }.items()
        }
        codes = agree(rigs["sm2"], "SM2", columns, 64)
        assert np.flatnonzero(codes == Code.INVALID).tolist() == list(places)


def made_of(algorithm: str, items) -> SignatureSet:
    """A batch of items with raw encodings."""
    digests, signatures, keys = (
        np.frombuffer(b"".join(values), np.uint8).reshape(len(items), -1)
        for values in zip(*((item.digest, item.signature, item.key_bytes) for item in items), strict=True)
    )
    codes = np.array([item.code for item in items], np.uint8)
    nothing = np.zeros(len(items), np.uint8)
    return SignatureSet(algorithm, digests, signatures, keys, nothing, codes, nothing)


# Keys of which the library does not see that the last window's point is its sum, for the key's scalar n - 6 on SM2
# and n - 2 on P-256: one of thirty is such a key.
MISSED = {"SM2": (2, 20, 73, 152), "ECDSA_P256": (10, 39, 82, 133)}


def near_the_order(algorithm: str, keys):
    """Valid items whose key is multiplied by what is 1 to 35 below the order."""
    if algorithm == "SM2":
        return [chosen("", d, 77777, N - below) for below in range(1, 36) for d in keys]
    return [chosen_ecdsa(P256, "", d, 77777, P256.n - below) for below in range(1, 36) for d in keys]


@pytest.mark.parametrize(("algorithm", "keys"), MISSED.items())
def test_scalars_of_the_key_near_the_order(rigs, algorithm, keys):
    items = near_the_order(algorithm, keys)
    made, pair = made_of(algorithm, items), rigs[PLUGIN_OF[algorithm]]
    codes = agree(pair, algorithm, columns_of(made), made.items)
    assert set(codes) == {Code.VALID}


@pytest.mark.parametrize("how", ["lanes", "provider"])
@pytest.mark.parametrize(("algorithm", "keys"), MISSED.items())
def test_scalars_of_an_enrolled_key_near_the_order(algorithm, keys, how):
    rig = together(PLUGIN_OF[algorithm], how)
    try:
        made = made_of(algorithm, near_the_order(algorithm, keys))
        slot = rig.fill("verify_enrolled", algorithm, enrolled_columns(made, enroll_keys(rig, made)), made.items)
        rig.run(slot)
        assert set(slot.codes) == {Code.VALID}
    finally:
        rig.close()


def test_exceptions_in_every_lane(rigs):
    """Items whose sums meet equal and opposite points, each beside every other and beside usual ones."""
    special = exceptional()
    for usual in (0, 3):
        items = [item for one in special for item in (one, *[chosen("plain", 0xD1CE, 77, 78)] * usual)]
        made = made_of("SM2", items)
        assert np.array_equal(agree(rigs["sm2"], "SM2", columns_of(made), made.items), made.codes)


@pytest.mark.parametrize("algorithm", ["ECDSA_P256", "ECDSA_SECP256K1"])
@pytest.mark.parametrize("items", [1, 5, 8, 1001])
def test_recovery(rigs, algorithm, items):
    made = make_signatures(algorithm, items, seed=43, keys=50, fault_share=0.2)
    signatures = np.hstack([made.signatures, made.recovery[:, None]]).ravel()
    columns = {
        "input": Column.fixed("input", made.digests.ravel(), 32, items),
        "signature": Column.fixed("signature", signatures, 65, items),
    }
    found = []
    for rig in rigs["ecdsa"]:
        slot = rig.fill("recover", algorithm, columns, items, {"address_hash": "KECCAK256"})
        rig.run(slot)
        found.append((slot.codes.copy(), *(slot.output(i).copy() for i in (0, 1))))
    for ours, theirs in zip(*found, strict=True):
        assert np.array_equal(ours, theirs)
    assert np.count_nonzero(found[0][0] == Code.VALID) >= items // 2


def compressed(curve: Curve, found: bool) -> bytes:
    """A compressed key, or one above whose x there is no point."""
    x = next(x for x in range(5, 99) if (curve.lift(x, False) is not None) == found)
    return b"\2" + x.to_bytes(32, "big")


@pytest.mark.parametrize(("algorithm", "curve"), [("SM2", SM2), ("ECDSA_P256", P256), ("ECDSA_SECP256K1", SECP256K1)])
def test_what_is_wrong_with_an_item_whose_key_awaits_a_root(rigs, algorithm, curve):
    """A key that is none comes before a wrong input, and before scalars that no signature has."""
    keys = [compressed(curve, True), compressed(curve, False), b"\2" + curve.p.to_bytes(32, "big"), b"\5" + bytes(32)]
    whole = (7).to_bytes(32, "big") + (9).to_bytes(32, "big")
    signatures = [whole, bytes(64), (7).to_bytes(32, "big") + (curve.n - 7).to_bytes(32, "big")]
    cases = [(k, s, e) for k in keys for s in signatures for e in (bytes(32), bytes(31))] * 3
    columns = {
        name: Column.variable(name, b"".join(values), np.cumsum([0, *map(len, values)]).astype("<u4"), len(values))
        for name, values in zip(("key", "signature", "input"), zip(*cases, strict=True), strict=True)
    }
    codes = agree(rigs[PLUGIN_OF[algorithm]], algorithm, columns, len(cases), {"key_encoding": "SEC1_COMPRESSED"})

    def expected(key: bytes, signature: bytes, digest: bytes) -> Code:
        of_key = [Code.UNDECIDED, Code.KEY_NOT_ON_CURVE, Code.KEY_RANGE, Code.KEY_PREFIX][keys.index(key)]
        if signature == bytes(64):
            return Code.OUT_OF_RANGE
        return of_key or (Code.INPUT_LENGTH if len(digest) != 32 else Code.INVALID)

    assert [Code(code) for code in codes] == [expected(*case) for case in cases]
