"""The layouts of columns that sm2's variant `interleaved` reads: what it reads on a GPU, and its codes on the CPU."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from _answers import BuiltPlugin
from _build import PLUGINS, Bytes
from _emulator import aligned, build_emulated, launch_emulated
from _reference import SM2, spki
from _sm2_cases import Item, edges, exceptional
from make_sm2_answers import compressed, der, uncompressed

from verifier.drivers import BatchStruct
from verifier.drivers._abi import ColumnStruct
from verifier.drivers.build import build_image, kernel_usage
from verifier.manifest import Choice
from verifier.model import Code
from verifier.registry import PluginSource, common_folder
from verifier.registry._parameters import parameter_number

BY_KERNEL, BY_SENDER = 1, 2  # the values of INTERLEAVED
THREADS = 128  # PREPARE_THREADS
UNTOUCHED = 0xA5A5A5A5
PROBE = Path(__file__).with_name("probe_interleaved.cu")


def interleaved(rows: Bytes) -> Bytes:
    """Word w of item i at 32 * w + i of every 32 items; (items, bytes), items a multiple of 32."""
    words = rows.reshape(len(rows) // 32, 32, -1, 4)
    return np.ascontiguousarray(words.transpose(0, 2, 1, 3)).reshape(rows.shape)


def read(
    by: int, columns: Sequence[Bytes], encodings: tuple[str, str], *, shift: int = 0, grid: int = 2
) -> tuple[Bytes, Bytes, Bytes]:
    """What the GPU's branches give: codes, (items, 160) of e, r, s, x, y, and the scratch, (40, capacity) words."""
    library = build_emulated(PROBE, flags=[f"-I{PLUGINS / 'sm2'}"], defines={"INTERLEAVED": by})
    items = len(columns[0])
    capacity = (items + 31) // 32 * 32
    codes, output, scratch = aligned(items), aligned(160 * items), aligned(160 * capacity)
    scratch[:] = UNTOUCHED & 0xFF
    batch = BatchStruct(items=items, capacity=capacity, codes=codes.ctypes.data, item_scratch=scratch.ctypes.data)
    held = []
    for i, column in enumerate(columns):
        memory = aligned(column.size + shift)[shift:]
        memory[:] = column.ravel()
        batch.inputs[i] = ColumnStruct(memory.ctypes.data, 0, column.shape[1])
        held.append(memory)
    batch.outputs[0], batch.output_strides[0] = output.ctypes.data, 160
    names = ("input_kind", "signature_encoding", "key_encoding")
    for i, (name, number) in enumerate(zip(names, ("DIGEST", *encodings), strict=True)):
        batch.parameters[i] = parameter_number(name, number)
    launch_emulated(library, "read", batch, grid=grid, threads=THREADS)
    return codes, output.reshape(items, 160), scratch.view(np.uint32).reshape(40, capacity)


def random_columns(items: int, signature: int, key: int) -> list[Bytes]:
    generator = np.random.default_rng(items)
    return [generator.integers(0, 256, (items, width), np.uint8) for width in (32, signature, key)]


@pytest.mark.parametrize("items", [1, 31, 32, 33, 70, 300])
def test_a_gpu_reads_what_it_transposed(items):
    digests, signatures, keys = columns = random_columns(items, 64, 64)
    codes, seen, scratch = read(BY_KERNEL, columns, ("RAW_RS", "RAW_XY"))
    assert (codes == Code.VALID).all()
    assert (seen == np.concatenate([digests, signatures, keys], axis=1)).all()
    assert (scratch[:, items:] == UNTOUCHED).all()

    digests, signatures, _ = columns = random_columns(items, 128, 1)
    codes, seen, scratch = read(BY_KERNEL, columns, ("RAW_RS_KEY", "IN_SIGNATURE"))
    assert (codes == Code.VALID).all()
    assert (seen == np.concatenate([digests, signatures], axis=1)).all()
    assert (scratch[:, items:] == UNTOUCHED).all()


@pytest.mark.parametrize("shift", [1, 2, 3])
def test_a_gpu_reads_columns_that_do_not_begin_at_a_word(shift):
    columns = random_columns(70, 64, 64)
    codes, seen, scratch = read(BY_KERNEL, columns, ("RAW_RS", "RAW_XY"), shift=shift)
    assert (codes == Code.VALID).all()
    assert (seen == np.concatenate(columns, axis=1)).all()
    assert (scratch == UNTOUCHED).all()


@pytest.mark.parametrize("by", [BY_KERNEL, BY_SENDER])
def test_a_gpu_reads_keys_of_other_encodings_as_they_come(by):
    digests, signatures, keys = random_columns(64, 64, 65)
    keys[:, 0] = 4
    rows = [digests, signatures, keys]
    columns = rows if by == BY_KERNEL else [interleaved(digests), interleaved(signatures), keys]
    codes, seen, _ = read(by, columns, ("RAW_RS", "SEC1_UNCOMPRESSED"))
    assert (codes == Code.VALID).all()
    assert (seen == np.concatenate([digests, signatures, keys[:, 1:]], axis=1)).all()


def test_a_gpu_reads_what_the_sender_interleaved():
    rows = random_columns(96, 64, 64)
    codes, seen, _ = read(BY_SENDER, [interleaved(column) for column in rows], ("RAW_RS", "RAW_XY"))
    assert (codes == Code.VALID).all()
    assert (seen == np.concatenate(rows, axis=1)).all()

    digests, signatures, unused = random_columns(96, 128, 1)
    columns = [interleaved(digests), interleaved(signatures), unused]
    codes, seen, _ = read(BY_SENDER, columns, ("RAW_RS_KEY", "IN_SIGNATURE"))
    assert (codes == Code.VALID).all()
    assert (seen == np.concatenate([digests, signatures], axis=1)).all()


SIGNATURES = {
    "RAW_RS": lambda item: item.signature,
    "RAW_RS_KEY": lambda item: item.signature + item.key_bytes,
    "DER_STRICT": lambda item: der(item.r, item.s),
}
KEYS = {
    "RAW_XY": lambda item: item.key_bytes,
    "SEC1_UNCOMPRESSED": lambda item: uncompressed(item.key),
    "SEC1_COMPRESSED": lambda item: compressed(item.key),
    "SPKI": lambda item: spki(SM2, uncompressed(item.key)),
    "IN_SIGNATURE": lambda item: item.key_bytes,
}


@pytest.fixture(scope="module")
def both() -> tuple[BuiltPlugin, BuiltPlugin]:
    return BuiltPlugin("sm2"), BuiltPlugin("sm2", ["-Og"], Choice("interleaved"))


@pytest.mark.parametrize("kind", ["DIGEST", "HASH_AS_MESSAGE", "MESSAGE"])
def test_codes_are_the_default_s_under_every_encoding(both, kind):
    """Columns of one width, so that the variant interleaves what it can."""
    items: list[Item] = [*edges(), *exceptional()[::40]]
    seen = set()
    for signature, key, low_s in itertools.product(SIGNATURES, KEYS, ("ACCEPT_ANY", "REQUIRE")):
        columns = {
            "input": [item.digest for item in items],
            "signature": [SIGNATURES[signature](item) for item in items],
            "key": [KEYS[key](item) for item in items],
        }
        usual, found = (
            plugin.run(
                "verify",
                "SM2",
                columns,
                b"1234567812345678",
                input_kind=kind,
                signature_encoding=signature,
                key_encoding=key,
                low_s=low_s,
            )
            for plugin in both
        )
        assert (found.codes == usual.codes).all(), (signature, key, low_s)
        assert (found.valid == usual.valid).all()
        assert (found.decided == usual.decided).all()
        seen |= set(usual.codes.tolist())
    assert {Code.INVALID, Code.OUT_OF_RANGE, Code.HIGH_S, Code.KEY_RANGE, Code.KEY_NOT_ON_CURVE} <= seen
    assert (Code.VALID in seen) == (kind == "DIGEST")  # the others hash what these signatures are over


@pytest.mark.parametrize(
    ("name", "width", "code"),
    [
        ("signature", 32, Code.SIGNATURE_LENGTH),
        ("signature", 128, Code.SIGNATURE_LENGTH),
        ("key", 32, Code.KEY_LENGTH),
        ("key", 128, Code.KEY_LENGTH),
        ("input", 64, Code.INPUT_LENGTH),
    ],
)
def test_columns_of_another_width_are_malformed(both, name, width, code):
    items = exceptional()[::20]
    columns = {
        "input": [item.digest for item in items],
        "signature": [item.signature for item in items],
        "key": [item.key_bytes for item in items],
    }
    columns[name] = [(3 * value)[:width] for value in columns[name]]
    usual, found = (plugin.run("verify", "SM2", columns).codes.tolist() for plugin in both)
    assert found == usual
    assert code in found
    assert Code.VALID not in found


@pytest.mark.long
@pytest.mark.parametrize("target", ["sm_80", "sm_90", "sm_100"])
def test_the_variant_compiles_for_gpus(target, tmp_path):
    source = PluginSource.read(PLUGINS / "sm2", common_folder())
    start, macros = source.manifest.build(Choice("interleaved"), target)
    image = build_image(source.reached(start), start, target, {**macros, "KEY_SLOTS": 16}, cache=tmp_path)
    (usage,) = (kernel for kernel in kernel_usage(image.log) if kernel.name == "sm2_prepare")
    assert usage.registers <= 168  # three blocks on a multiprocessor
    assert usage.spill_stores == 0
    assert 0 < 3 * usage.shared <= 100 << 10  # which every architecture since sm_80 has
