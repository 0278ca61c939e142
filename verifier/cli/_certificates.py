"""The x509 part of `verifier verify`: who signed whom."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from node_adapter.client import Algorithm, VerifierClient
from node_adapter.errors import FormatError
from node_adapter.formats import Signed, Unverifiable, verify_signed
from node_adapter.formats.x509 import Certificate, Pair, candidates, load, question, tbs_digests
from verifier.model import Code

__all__ = ["CertificateOptions", "needed_plugins", "read_certificates", "verify_certificates"]


@dataclass(frozen=True, slots=True)
class CertificateOptions:
    """`za` False: signatures over SM3(TBS). `everything`: all pairs, not only those whose names fit."""

    user_id: bytes | None
    za: bool
    everything: bool


def read_certificates(files: Sequence[Path]) -> list[Certificate]:
    """All certificates of the files, each once, however many files hold it. Raises FormatError naming the file."""
    unique: dict[bytes, Certificate] = {}
    for path in files:
        try:
            for certificate in load(path.read_bytes(), path.name):
                unique.setdefault(certificate.der, certificate)
        except FormatError as error:
            raise FormatError(error.offset, f"{error.problem} ({path})") from None
    return list(unique.values())


def needed_plugins(certificates: Sequence[Certificate], options: CertificateOptions) -> tuple[str, ...]:
    """The plugins that verify certificates with such keys."""
    algorithms = {certificate.algorithm for certificate in certificates}
    sm2 = ("sm2",) if options.za else ("sm2", "sm3")
    return (
        *(sm2 if Algorithm.SM2 in algorithms else ()),
        *(("ecdsa",) if algorithms & {Algorithm.ECDSA_P256, Algorithm.ECDSA_SECP256K1} else ()),
    )


def verify_certificates(
    client: VerifierClient, certificates: Sequence[Certificate], options: CertificateOptions, console: Console
) -> tuple[dict[str, Any], bool]:
    """Verifies the certificates against each other. Gives what was found, and whether each has an issuer."""
    pairs = candidates(certificates, everything=options.everything)
    digests = None if options.za else tbs_digests(client, certificates)
    questions = [
        question(
            certificates[pair.issuer],
            certificates[pair.subject],
            user_id=options.user_id,
            digest=digests[pair.subject] if digests else None,
        )
        for pair in pairs
    ]
    asked = [(pair, q) for pair, q in zip(pairs, questions, strict=True) if isinstance(q, Signed)]
    outcome = verify_signed(client, [q for _, q in asked])
    outcome.raise_unanswered()
    codes = {pair: Code(int(code)) for (pair, _), code in zip(asked, outcome.codes, strict=True)}
    reasons = {pair: q.why for pair, q in zip(pairs, questions, strict=True) if isinstance(q, Unverifiable)}
    issued = {pair.subject for pair, code in codes.items() if code is Code.VALID}
    orphans = [c for place, c in enumerate(certificates) if place not in issued]
    # Of several that bear the issuer's name one signed: the others say nothing about the certificate.
    _print(
        console,
        certificates,
        [p for p in pairs if p.subject not in issued or codes.get(p) is Code.VALID],
        codes,
        reasons,
        options,
    )
    for orphan in orphans:
        console.print(f"[yellow]no issuer found[/yellow]: {escape(orphan.source)}, {escape(orphan.name)}")
    if options.za and any(
        code is Code.INVALID and pair.subject not in issued and certificates[pair.issuer].algorithm is Algorithm.SM2
        for pair, code in codes.items()
    ):
        console.print("SM2 signatures may be over another user id (--sm2-user-id), or without ZA (--sm2-za none)")
    served = (
        f"; served by {', '.join(outcome.served_by)} on {', '.join(outcome.devices)}" if outcome.served_by else ""
    )
    console.print(f"{len(certificates)} certificates, {len(issued)} with an issuer{served}")
    found = {
        "certificates": [{"source": c.source, "subject": c.name, "issuer": c.issuer.text} for c in certificates],
        "relations": [
            {
                "issuer": certificates[pair.issuer].source,
                "subject": certificates[pair.subject].source,
                "verdict": codes[pair].name if pair in codes else "NOT_VERIFIABLE",
                **({"reason": reasons[pair]} if pair in reasons else {}),
            }
            for pair in pairs
        ],
        "without_issuer": [c.source for c in orphans],
        "served_by": list(outcome.served_by),
        "devices": list(outcome.devices),
    }
    return found, not orphans


def _print(
    console: Console,
    certificates: Sequence[Certificate],
    pairs: Sequence[Pair],
    codes: dict[Pair, Code],
    reasons: dict[Pair, str],
    options: CertificateOptions,
) -> None:
    table = Table("issuer", "signed", "verdict", title="Who signed whom", title_justify="left")
    for pair in pairs:
        code = codes.get(pair)
        if options.everything and code is not Code.VALID:
            continue
        issuer, subject = certificates[pair.issuer], certificates[pair.subject]
        style = "green" if code is Code.VALID else "yellow" if code in (None, Code.UNDECIDED) else "red"
        verdict = reasons[pair] if code is None else code.name.lower()
        table.add_row(
            f"{escape(issuer.name)}\n[dim]{escape(issuer.source)}[/dim]",
            "itself"
            if pair.issuer == pair.subject
            else f"{escape(subject.name)}\n[dim]{escape(subject.source)}[/dim]",
            f"[{style}]{verdict}[/{style}]",
        )
    console.print(table)
