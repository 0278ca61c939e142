"""Cases that users of such systems ran into, each with its right behaviour.

COVERED tells which tests hold each case; what concerns a kernel alone is tested here, the rest where its part is.
"""

from __future__ import annotations

import hashlib
import random
from pathlib import Path

import numpy as np
import pytest
from _answers import BuiltPlugin
from _ecdsa_cases import be32, chosen, der, public, sign
from _reference import P256, SECP256K1, SM2
from _sm2_cases import identity_hash, sm3
from _sm2_cases import public as sm2_public
from _sm2_cases import sign as sm2_sign

from verifier.model import Code
from verifier.schemes import DEFAULT_SM2_USER_ID

TESTS = Path(__file__).resolve().parents[1]
HERE = "plugins/test_chain_cases.py"

# Case: what went wrong and where it was told, then the tests (file under tests/, function).
COVERED: dict[int, tuple[str, list[tuple[str, str]]]] = {
    1: (
        "a key with 04 where 64 bytes are wanted: FISCO-BCOS/FISCO-BCOS#4841",
        [(HERE, "test_key_forms_are_not_guessed")],
    ),
    2: ("the hash is hashed again: FISCO-BCOS/java-sdk#310", [(HERE, "test_hash_as_message_is_not_digest")]),
    3: (
        "user id empty, default or other: tjfoc/gmsm#61",
        [(HERE, "test_user_ids"), ("plugins/test_sm2_verify.py", "test_the_longest_user_id")],
    ),
    4: ("r or s without its leading zero: tjfoc/gmsm#33", [(HERE, "test_leading_zeros_belong_to_raw_signatures")]),
    5: (
        "raw r || s given to a DER parser: lpilp/phpsm2sm3sm4#71",
        [(HERE, "test_raw_given_as_der_spoils_no_neighbour")],
    ),
    6: (
        "prefix wrong, first byte dropped, point not checked: tjfoc/gmsm#66",
        [(HERE, "test_every_key_is_checked"), ("plugins/test_encodings.py", "test_keys")],
    ),
    7: (
        "high s, and n / 2 itself: aptos-labs/aptos-core#13544",
        [("plugins/test_ecdsa_verify.py", "test_low_s"), ("plugins/test_ecdsa_recover.py", "test_low_s")],
    ),
    8: (
        "recovery id above 3, r and s at 0, n - 1, n, n + 1: ethereum/go-ethereum#1983",
        [
            ("plugins/test_ecdsa_recover.py", "test_every_recovery_id"),
            ("plugins/test_ecdsa_recover.py", "test_edges"),
            ("plugins/test_ecdsa_verify.py", "test_edges"),
        ],
    ),
    9: (
        "zero digest, rare carries: emmansun/gmsm#560",
        [
            (HERE, "test_zero_and_full_digests"),
            ("plugins/test_ecdsa_verify.py", "test_openssl_agrees"),
            ("plugins/test_ecdsa_verify.py", "test_libsecp256k1_agrees"),
            ("plugins/test_sm2_verify.py", "test_random_items_by_another_library"),
            ("differential/test_devices_agree.py", "test_gpu_and_cpu_agree_on_a_million"),
        ],
    ),
    10: (
        "u1 G = u2 Q and u1 G = -u2 Q: wolfSSL/wolfssl#2581",
        [
            ("plugins/test_ecdsa_verify.py", "test_edges"),
            ("plugins/test_ecdsa_verify.py", "test_small_keys"),
            ("plugins/test_sm2_verify.py", "test_exceptional_points"),
        ],
    ),
    11: (
        "malformed DER accepted: tlsfuzzer/python-ecdsa#114 (CVE-2019-14853, CVE-2019-14859)",
        [
            ("plugins/test_encodings.py", "test_strict_der_refuses"),
            ("plugins/test_wycheproof.py", "test_wycheproof"),
            ("fuzz/test_fuzz_encodings.py", "test_der"),
            ("plugins/test_ecdsa_verify.py", "test_digest_sizes"),
        ],
    ),
    12: (
        "a second backend without the first one's checks: solana-labs/solana-perf-libs#70",
        [("registry/test_swap.py", "test_a_failed_load_changes_nothing")],
    ),
    13: (
        "CPU and GPU paths that differ: solana-labs/solana#20018",
        [
            ("differential/test_devices_agree.py", "test_cpu"),
            ("differential/test_devices_agree.py", "test_gpu_and_cpu_agree_on_a_million"),
        ],
    ),
    14: (
        "a batch cut for another backend starves the rest: solana-labs/solana#3951",
        [
            ("scheduling/test_scheduler.py", "test_a_large_batch_is_cut_over_devices"),
            ("scheduling/test_backlog.py", "test_bulk_work_leaves_room_for_consensus"),
        ],
    ),
    15: (
        "success before verification ran, one bad item drops all: tendermint/tendermint#6414",
        [
            (HERE, "test_skipped_stages_decide_nothing"),
            (HERE, "test_one_bad_of_many"),
            ("integration/test_daemon.py", "test_one_bad_item_in_8192_leaves_the_others_valid"),
        ],
    ),
    16: (
        "a failure of the device taken for an invalid item: ZcashFoundation/zebra#10559",
        [
            ("scheduling/test_retries.py", "test_after_the_last_try_items_are_undetermined_never_invalid"),
            ("node_adapter/test_client_failures.py", "test_undecided_is_never_invalid"),
        ],
    ),
    17: (
        "answers from a context that is lost: triton-inference-server/server#3627",
        [
            ("workers/test_pipeline.py", "test_nothing_is_decided_after_a_failure"),
            ("workers/test_supervision.py", "test_every_batch_in_flight_fails_at_once"),
            ("integration/test_daemon_under_stress.py", "test_a_device_that_fails_is_replaced_by_another"),
        ],
    ),
    18: (
        "a GPU path that costs more than it gives: anza-xyz/agave#3817",
        [("scheduling/test_router.py", "test_few_items_go_to_the_cpu_and_many_to_the_gpu")],
    ),
}


@pytest.fixture(scope="module")
def ecdsa() -> BuiltPlugin:
    return BuiltPlugin("ecdsa")


@pytest.fixture(scope="module")
def sm2() -> BuiltPlugin:
    return BuiltPlugin("sm2")


def test_every_case_has_its_tests():
    assert sorted(COVERED) == list(range(1, 19))
    for number, (_, tests) in COVERED.items():
        assert tests, number
        for file, function in tests:
            assert f"def {function}(" in (TESTS / file).read_text(), (number, file, function)


def test_key_forms_are_not_guessed(ecdsa, sm2):
    """64, 65 and 33 bytes under each key encoding: only the named one is taken."""
    for plugin, curve in ((ecdsa, P256), (ecdsa, SECP256K1), (sm2, SM2)):
        x, y = curve.g
        forms = {
            "RAW_XY": be32(x) + be32(y),
            "SEC1_UNCOMPRESSED": b"\x04" + be32(x) + be32(y),
            "SEC1_COMPRESSED": bytes([2 + y % 2]) + be32(x),
        }
        for named in forms:
            columns = {"input": [be32(1)] * 3, "signature": [be32(1) * 2] * 3, "key": list(forms.values())}
            result = plugin.run("verify", curve.name, columns, key_encoding=named)
            for form, code in zip(forms, result.codes, strict=True):
                assert Code(code) is (Code.INVALID if form == named else Code.KEY_LENGTH), (curve.name, named, form)


def test_hash_as_message_is_not_digest(sm2):
    """The same 32 bytes under the three input kinds: e itself, or a message that is hashed with ZA."""
    generator = random.Random(2)
    key = sm2_public(7)
    value = hashlib.sha256(b"transaction").digest()
    hashed = sm3(identity_hash(DEFAULT_SM2_USER_ID, key) + value)
    signatures = []
    for e in (value, hashed):
        r, s = sm2_sign(7, int.from_bytes(e, "big"), generator)
        signatures.append(be32(r) + be32(s))
    columns = {"input": [value] * 2, "signature": signatures, "key": [be32(key[0]) + be32(key[1])] * 2}
    verdicts = {
        kind: list(sm2.run("verify", "SM2", columns, DEFAULT_SM2_USER_ID, input_kind=kind).codes)
        for kind in ("DIGEST", "HASH_AS_MESSAGE", "MESSAGE")
    }
    assert verdicts == {
        "DIGEST": [Code.VALID, Code.INVALID],
        "HASH_AS_MESSAGE": [Code.INVALID, Code.VALID],
        "MESSAGE": [Code.INVALID, Code.VALID],
    }


def test_user_ids(sm2):
    """A signature counts under its own user id alone; the empty one is a value like any other."""
    generator = random.Random(3)
    key, message = sm2_public(8), b"message"
    ids = [DEFAULT_SM2_USER_ID, b"", b"alice@example.org"]
    signatures = []
    for identity in ids:
        e = sm3(identity_hash(identity, key) + message)
        r, s = sm2_sign(8, int.from_bytes(e, "big"), generator)
        signatures.append(be32(r) + be32(s))
    columns = {"input": [message] * 3, "signature": signatures, "key": [be32(key[0]) + be32(key[1])] * 3}
    for i, identity in enumerate(ids):
        result = sm2.run("verify", "SM2", columns, identity, input_kind="MESSAGE")
        assert [j for j, code in enumerate(result.codes) if code == Code.VALID] == [i]


@pytest.mark.parametrize("curve", [P256, SECP256K1], ids=lambda curve: curve.name)
def test_leading_zeros_belong_to_raw_signatures(ecdsa, curve):
    """r below 2^248: 64 bytes are valid, the 63 without the zero are malformed."""
    k = next(k for k in range(1, 5000) if public(curve, k)[0] < 2**248)
    r, s, _ = sign(curve, 3, be32(9), k)
    d = next(d for d in range(1, 5000) if sign(curve, d, be32(9), 1)[1] < 2**248)
    r2, s2, _ = sign(curve, d, be32(9), 1)
    good = [be32(r) + be32(s), be32(r2) + be32(s2)]
    short = [good[0][1:], good[1][:32] + good[1][33:], good[0] + b"\0"]
    keys = [be32(x) + be32(y) for x, y in (public(curve, 3), public(curve, d))]
    columns = {"input": [be32(9)] * 5, "signature": good + short, "key": [*keys, *keys, keys[0]]}
    result = ecdsa.run("verify", curve.name, columns)
    assert list(result.codes) == [Code.VALID] * 2 + [Code.SIGNATURE_LENGTH] * 3


def test_raw_given_as_der_spoils_no_neighbour(ecdsa, sm2):
    for plugin, curve in ((ecdsa, P256), (ecdsa, SECP256K1)):
        item = chosen(curve, "", 5, 3, 4)
        good = der(item.r, item.s)
        columns = {
            "input": [item.digest] * 3,
            "signature": [good, item.signature, good],
            "key": [item.key_bytes] * 3,
        }
        result = plugin.run("verify", curve.name, columns, signature_encoding="DER_STRICT")
        assert list(result.codes) == [Code.VALID, Code.SIGNATURE_DER, Code.VALID]
    r, s = sm2_sign(5, 6, random.Random(5))
    x, y = sm2_public(5)
    signatures = [der(r, s), be32(r) + be32(s), der(r, s)]
    columns = {"input": [be32(6)] * 3, "signature": signatures, "key": [be32(x) + be32(y)] * 3}
    result = sm2.run("verify", "SM2", columns, signature_encoding="DER_STRICT")
    assert list(result.codes) == [Code.VALID, Code.SIGNATURE_DER, Code.VALID]


def test_every_key_is_checked(ecdsa, sm2):
    """Infinity as zeros, points of the twist, wrong first bytes: none is a key, in any form."""
    for plugin, curve in ((ecdsa, P256), (ecdsa, SECP256K1), (sm2, SM2)):
        x, y = curve.g
        off = next(x for x in range(1, 99) if curve.lift(x, False) is None)
        cases = {
            "RAW_XY": [(bytes(64), Code.KEY_NOT_ON_CURVE), (be32(x) + be32(y ^ 1), Code.KEY_NOT_ON_CURVE)],
            "SEC1_UNCOMPRESSED": [
                (b"\x04" + bytes(64), Code.KEY_NOT_ON_CURVE),
                (b"\x00" + bytes(64), Code.KEY_PREFIX),
                (b"\x06" + be32(x) + be32(y), Code.KEY_PREFIX),
                (b"\x04" + be32(x) + be32(curve.p), Code.KEY_RANGE),
            ],
            "SEC1_COMPRESSED": [
                (b"\x02" + be32(off), Code.KEY_NOT_ON_CURVE),
                (b"\x04" + be32(x), Code.KEY_PREFIX),
                (b"\x03" + be32(curve.p), Code.KEY_RANGE),
                (b"\x00", Code.KEY_LENGTH),
            ],
        }
        for encoding, rows in cases.items():
            columns = {
                "input": [be32(1)] * len(rows),
                "signature": [be32(1) * 2] * len(rows),
                "key": [key for key, _ in rows],
            }
            result = plugin.run("verify", curve.name, columns, key_encoding=encoding)
            assert [Code(code) for code in result.codes] == [code for _, code in rows], (curve.name, encoding)


@pytest.mark.parametrize("curve", [P256, SECP256K1], ids=lambda curve: curve.name)
def test_zero_and_full_digests(ecdsa, curve):
    digests = [bytes(32), b"\xff" * 32, be32(curve.n), be32(curve.n - 1), be32(1)]
    x, y = public(curve, 6)
    signatures = []
    for digest in digests:
        r, s, _ = sign(curve, 6, digest, 12345)
        signatures.append(be32(r) + be32(s))
    columns = {"input": digests, "signature": signatures, "key": [be32(x) + be32(y)] * len(digests)}
    assert list(ecdsa.run("verify", curve.name, columns).codes) == [Code.VALID] * len(digests)
    columns["input"] = digests[1:] + digests[:1]
    codes = list(ecdsa.run("verify", curve.name, columns).codes)
    assert codes == [Code.INVALID] * len(digests)


def test_skipped_stages_decide_nothing(ecdsa, sm2):
    """With any number of its last stages left out, an operation decides nothing."""
    item = chosen(P256, "", 5, 3, 4)
    for plugin, algorithm in ((ecdsa, "ECDSA_P256"), (sm2, "SM2")):
        operation = plugin.manifest.operation("verify", algorithm)
        assert operation is not None
        deciding = next(i for i, stage in enumerate(operation.stages) if stage.endswith("_verify"))
        x, y = public(P256, 5) if algorithm != "SM2" else sm2_public(5)
        signature = item.signature if algorithm != "SM2" else be32(3) + be32(4)
        columns = [[item.digest] * 40, [signature] * 40, [be32(x) + be32(y)] * 40]
        numbers = [1] * len(operation.parameters)
        numbers[0] = 2  # DIGEST
        if "digest_bytes" in operation.parameters:
            numbers[list(operation.parameters).index("digest_bytes")] = 32
        for kept in range(deciding + 1):
            result = plugin.plugin.run(operation.stages[:kept], columns, parameters=numbers)
            assert not np.unpackbits(result.valid).any(), (algorithm, kept)
            assert not np.unpackbits(result.decided).any(), (algorithm, kept)
        result = plugin.plugin.run(operation.stages, columns, parameters=numbers)
        assert np.unpackbits(result.decided, bitorder="little")[:40].all()


def test_one_bad_of_many(ecdsa):
    """One bad item among 2,048 leaves 2,047 valid, wherever it stands."""
    item = chosen(SECP256K1, "", 5, 3, 4)
    count = 2048
    for bad in (0, 31, 32, 1000, count - 1):
        columns = {
            "input": [item.digest] * count,
            "signature": [item.signature] * count,
            "key": [item.key_bytes] * count,
        }
        columns["signature"][bad] = be32(item.r) + be32(item.s ^ 1)
        valid = np.unpackbits(ecdsa.run("verify", "ECDSA_SECP256K1", columns).valid, bitorder="little")[:count]
        assert list(np.flatnonzero(valid == 0)) == [bad]
