"""`verifier verify` against a daemon that verifies with Python integers."""

import gzip
import json

import _ecdsa
import _sm2
import pytest
import typer
from _bitcoin_blocks import block
from gmssl import func, sm3
from typer.testing import CliRunner

from node_adapter.client import MockVerifier
from node_adapter.formats._bitcoin import double_sha256
from verifier.cli import verify


def sm3_digest(_, message):
    return bytes.fromhex(sm3.sm3_hash(func.bytes_to_list(message)))


@pytest.fixture(scope="module")
def daemon():
    with MockVerifier(_sm2.verify, digest=sm3_digest) as daemon:
        yield daemon


@pytest.fixture
def run(daemon):
    app = typer.Typer()
    verify.register(app)

    def invoke(*arguments, address=daemon.target):
        return CliRunner().invoke(app, [*map(str, arguments), "--address", address])

    return invoke


def relations(result):
    found = json.loads(result.stdout)
    return found, {(r["issuer"], r["subject"]) for r in found["relations"] if r["verdict"] == "VALID"}


def test_every_certificate_has_its_issuer(run, shared):
    folder = shared / "real" / "sm2-certs"
    names = ["sm_ca.crt", "sm_node.crt", "sm_ennode.crt", "sm2-root-cert.pem", "sm2-cert.pem"]
    names += ["sm2-chain-ca.crt", "sm2-leaf.crt"]
    result = run("--format", "x509", "--json", *(folder / name for name in names))
    assert result.exit_code == 0, result.output
    found, valid = relations(result)
    assert valid == {
        ("sm_ca.crt:1", "sm_ca.crt:1"),
        ("sm_ca.crt:1", "sm_node.crt:2"),
        ("sm_node.crt:2", "sm_node.crt:1"),
        ("sm_node.crt:2", "sm_ennode.crt:1"),
        ("sm2-root-cert.pem:1", "sm2-root-cert.pem:1"),
        ("sm2-root-cert.pem:1", "sm2-cert.pem:1"),
        ("sm2-chain-ca.crt:2", "sm2-chain-ca.crt:2"),
        ("sm2-chain-ca.crt:2", "sm2-chain-ca.crt:1"),
        ("sm2-chain-ca.crt:1", "sm2-leaf.crt:1"),
    }
    assert len(found["certificates"]) == 9
    assert found["without_issuer"] == []
    assert found["served_by"] == ["mock@0.0.0#1"]


def test_signatures_without_za_need_the_option(run, shared):
    files = sorted((shared / "real" / "sm2-certs").glob("sm2-noza*"))
    result = run("--format", "x509", "--json", *files)
    assert result.exit_code == 1
    assert len(json.loads(result.stdout)["without_issuer"]) == 2
    result = run("--format", "x509", "--json", "--sm2-za", "none", *files)
    assert result.exit_code == 0, result.output
    root, leaf = "sm2-noza-root-cert.pem:1", "sm2-noza-cert.pem:1"
    assert relations(result)[1] == {(root, root), (root, leaf)}


def test_another_user_id_finds_nothing(run, shared):
    result = run("--format", "x509", "--json", "--sm2-user-id", "", shared / "real" / "sm2-certs" / "sm_ca.crt")
    assert result.exit_code == 1
    assert relations(result)[1] == set()


def test_tables_name_who_signed_whom(run, shared):
    result = run("--format", "x509", "--all-pairs", shared / "real" / "sm2-certs" / "sm_node.crt")
    assert result.exit_code == 0, result.output
    assert "itself" in result.output
    assert "3 certificates, 3 with an issuer" in result.output
    assert "served by mock@0.0.0#1 on mock" in result.output


def test_the_table_leaves_out_namesakes_of_an_issuer(run, shared):
    """The two bear one name, and only the root signed."""
    folder = shared / "real" / "sm2-certs"
    result = run("--format", "x509", folder / "sm2-root-cert.pem", folder / "sm2-cert.pem")
    assert result.exit_code == 0, result.output
    assert "invalid" not in result.output
    assert result.output.count(" valid ") == 2


def test_other_signing_modes_are_hinted_at(run, shared):
    file = shared / "real" / "sm2-certs" / "sm2-noza-root-cert.pem"
    assert "--sm2-za none" in run("--format", "x509", file).output
    assert "--sm2-za none" not in run("--format", "x509", "--sm2-za", "none", file).output


def test_a_certificate_without_issuer_is_named(run, shared):
    result = run("--format", "x509", shared / "real" / "sm2-certs" / "sm2-leaf.crt")
    assert result.exit_code == 1
    assert "no issuer found: sm2-leaf.crt:1" in result.output


def test_a_file_that_is_none(run, tmp_path):
    path = tmp_path / "bad.pem"
    path.write_bytes(b"\x30\x03\x01")
    result = run("--format", "x509", path)
    assert result.exit_code == 2
    assert "at byte 1" in result.stderr
    assert "bad.pem" in result.stderr
    assert run("--format", "x509", tmp_path / "absent").exit_code == 2


def test_undecided_is_not_an_issuer_and_not_invalid(shared, daemon):
    app = typer.Typer()
    verify.register(app)
    with MockVerifier(lambda items: [0] * len(items.inputs)) as silent:
        path = shared / "real" / "sm2-certs" / "sm_ca.crt"
        result = CliRunner().invoke(app, ["--format", "x509", "--json", str(path), "--address", silent.target])
    assert result.exit_code == 1
    assert [r["verdict"] for r in json.loads(result.stdout)["relations"]] == ["UNDECIDED"]


@pytest.mark.parametrize(
    ("format_", "name"), [("x509", "sm2-certs/sm_ca.crt"), ("ethereum", "ethereum-blockchain.blocks")]
)
def test_no_daemon_is_an_error_and_no_verdict(shared, run, format_, name):
    result = run("--format", format_, "--timeout", "0.1", shared / "real" / name, address="127.0.0.1:1")
    assert result.exit_code == 2
    assert "error: no daemon answered at 127.0.0.1:1" in result.output
    assert "issuer" not in result.output
    assert "signatures" not in result.output


def block_app():
    app = typer.Typer()
    verify.register(app)
    return lambda *arguments: CliRunner().invoke(app, list(map(str, arguments)))


@pytest.fixture(scope="module")
def ecdsa():
    with MockVerifier(_ecdsa.verify, recover=_ecdsa.recover) as daemon:
        yield daemon


@pytest.mark.parametrize(
    ("name", "format_", "transactions", "signatures"),
    [
        ("fabric-v2.0-ledger.blockfile", "fabric", 20, 73),
        ("ethereum-chain.rlp", "ethereum", 603, 604),
        ("ethereum-blockchain.blocks", "ethereum", 32, 32),
    ],
)
def test_real_files_are_valid(ecdsa, shared, name, format_, transactions, signatures):
    path = shared / "real" / name
    result = block_app()(path, "--format", format_, "--address", ecdsa.target, "--json")
    assert result.exit_code == 0, result.output
    (file,) = json.loads(result.stdout)["files"]
    assert (file["transactions"], file["signatures"]) == (transactions, signatures)
    assert {s["verdict"] for record in file["records"] for s in record["signatures"]} == {"VALID"}
    assert all(("address" in s) == (format_ == "ethereum") for r in file["records"] for s in r["signatures"])


def test_block_tables_name_what_is_wrong(ecdsa, shared, tmp_path):
    data = bytearray((shared / "real" / "fabric-v2.0-ledger.blockfile").read_bytes())
    data[4000] ^= 1  # in the first block's configuration
    path = tmp_path / "spoilt.blockfile"
    path.write_bytes(data)
    result = block_app()(path, "--format", "fabric", "--address", ecdsa.target)
    assert result.exit_code == 1
    lines = result.output.splitlines()
    assert lines[:4] == [
        "block 0: 1 invalid, 2 valid, 1 not verifiable in 1 transactions",
        "  transaction 0: 1 invalid, 2 valid",
        "    (configuration) creator: invalid",
        lines[3],
    ]
    assert lines[3].startswith("  header: not verifiable: data hash mismatch")
    assert "block 1: 4 valid in 1 transactions" in lines
    assert "73 signatures: 72 valid, 1 invalid" in lines[-1]
    brief = block_app()(path, "--format", "fabric", "--address", ecdsa.target, "--brief")
    assert brief.output.splitlines() == [*lines[:4], lines[-1]]


def test_what_came_before_an_error_is_verified(ecdsa, shared, tmp_path):
    data = (shared / "real" / "ethereum-blockchain.blocks").read_bytes()
    path = tmp_path / "cut.blocks"
    path.write_bytes(data[:-100])
    result = block_app()(path, "--format", "ethereum", "--address", ecdsa.target)
    assert result.exit_code == 2
    assert "at byte" in result.stderr
    assert "cut.blocks" in result.stderr
    # The last block alone is lost: what came before it is verified, and printed.
    assert "  transaction 0: 1 valid by 0xa94f5374fce5edbc8e2a8697c15331677e6ebf0b" in result.output
    assert "block 31: 1 valid in 1 transactions" in result.output
    assert "31 signatures: 31 valid" in result.output


def test_a_file_that_is_not_there_does_not_stop_the_next(ecdsa, shared, tmp_path):
    good = shared / "real" / "ethereum-blockchain.blocks"
    result = block_app()(tmp_path / "absent", good, "--format", "ethereum", "--address", ecdsa.target, "--json")
    assert result.exit_code == 2
    absent, there = json.loads(result.stdout)["files"]
    assert "absent" in absent["error"]
    assert (there["error"], there["signatures"]) == (None, 32)


def test_what_nobody_signs_is_shown_and_no_fault(ecdsa, tmp_path):
    path = tmp_path / "block"
    spent = tmp_path / "spent"
    name = bytes(range(32))
    transaction = b"\1\0\0\0\1" + name[::-1] + bytes(5) + bytes(4) + b"\1" + bytes(8) + b"\1\x51" + bytes(4)
    coinbase = b"\1\0\0\0\1" + bytes(32) + b"\xff" * 4 + bytes(5) + b"\1" + bytes(9) + bytes(4)
    root = double_sha256(double_sha256(coinbase) + double_sha256(transaction))
    path.write_bytes(bytes(36) + root + bytes(12) + b"\2" + coinbase + transaction)
    spent.write_text(f"{name.hex()}:0 1 51\n")
    run = block_app()
    arguments = (path, "--format", "bitcoin", "--address", ecdsa.target, "--spent", spent)
    result = run(*arguments)
    assert result.exit_code == 0, result.output
    assert "  input 0: unsigned: its script checks no signature" in result.output
    assert "0 not verifiable; 1 unsigned" in result.output
    (file,) = json.loads(run(*arguments, "--json").stdout)["files"]
    assert file["records"][1]["unsigned"][0]["why"] == "its script checks no signature"


def test_a_nodes_files_are_read_through_the_key_beside_them(ecdsa, tmp_path):
    data = bytes.fromhex("f9beb4d9") + len(block()).to_bytes(4, "little") + block() + bytes(50)
    key = bytes(range(3, 11))
    hidden = bytes(byte ^ key[place % 8] for place, byte in enumerate(data))
    run = block_app()
    for name, content, beside, good in (
        ("blk00001.dat", hidden, key, True),
        ("blk00001.dat", data, bytes(8), True),
        ("blk00001.dat", data, b"", True),
        ("blk00001.dat", hidden, None, False),
        ("other.dat", hidden, key, False),
    ):
        folder = tmp_path / f"{name}-{beside}"
        folder.mkdir()
        (folder / name).write_bytes(content)
        if beside is not None:
            (folder / "xor.dat").write_bytes(beside)
        result = run(folder / name, "--format", "bitcoin", "--address", ecdsa.target)
        assert (result.exit_code == 0) == good, result.output


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda data: data.hex().encode() + b"\n", "hexadecimal text, which `xxd -r -p` turns into bytes"),
        (lambda data: b"0x" + data.hex().encode(), "hexadecimal text"),
        (gzip.compress, "compressed with gzip"),
    ],
)
@pytest.mark.parametrize("format_", ["bitcoin", "ethereum"])
def test_files_of_another_form_are_told(ecdsa, tmp_path, make, text, format_):
    path = tmp_path / "block"
    path.write_bytes(make(block()))
    result = block_app()(path, "--format", format_, "--address", ecdsa.target, "--json")
    assert result.exit_code == 2
    assert text in json.loads(result.stdout)["files"][0]["error"]


@pytest.mark.parametrize(
    ("format_", "data"), [("ethereum", b""), ("fabric", b""), ("chainmaker", b""), ("fisco", b"[]"), ("bitcoin", b"")]
)
def test_a_file_with_nothing_in_it_is_not_good(ecdsa, tmp_path, format_, data):
    path = tmp_path / "empty"
    path.write_bytes(data)
    result = block_app()(path, "--format", format_, "--address", ecdsa.target, "--json")
    assert result.exit_code == 2, result.output
    assert not json.loads(result.stdout)["ok"]


def test_options_of_the_formats(ecdsa, shared, tmp_path):
    path = shared / "real" / "ethereum-blockchain.blocks"
    run = block_app()
    result = run(path, "--format", "ethereum", "--address", ecdsa.target, "--chain-id", 99)
    assert result.exit_code == 0, "transactions without EIP-155 hold on every chain"
    result = run(
        shared / "real" / "ethereum-chain.rlp", "--format", "ethereum", "--address", ecdsa.target, "--chain-id", 99
    )
    assert result.exit_code == 1
    assert "signed for chain" in result.output
    result = run(path, "--format", "ethereum", "--address", ecdsa.target, "--chain-id", "main")
    assert result.exit_code == 2
    assert "chains are numbers" in result.output
    spent = tmp_path / "spent"
    spent.write_text("nothing")
    result = run(path, "--format", "bitcoin", "--address", ecdsa.target, "--spent", spent)
    assert result.exit_code == 2
    assert "txid:index" in result.stderr
    assert str(spent) in result.stderr.replace("\n", "")


@pytest.mark.parametrize(
    ("format_", "content"), [("ethereum", b""), ("fabric", b""), ("chainmaker", b""), ("fisco", b"[]")]
)
def test_a_file_with_nothing_in_it_is_no_success(tmp_path, format_, content):
    path = tmp_path / "nothing"
    path.write_bytes(content)
    with MockVerifier() as daemon:
        result = block_app()("--format", format_, path, "--address", daemon.target)
    assert result.exit_code == 2
    assert f"cannot be read: at byte 0: no block and no transaction is in it ({path})" in result.output
