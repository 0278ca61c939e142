"""What a source may include: the files that it came with, by name, and the compiler's own headers.

Compilers would read any path that they are given, and neither a plugin's digest nor the cache's key would know of it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from verifier.errors import BuildError

__all__ = ["check_includes"]

# Before anything else a compiler joins lines that end in a backslash.
_SPLICE = re.compile(rb"\\[ \t\v\f]*\r?\n")
_GAP = rb"(?:\s|(?>/\*.*?\*/))*+"
_OPERAND = rb'("[^"\n]*"|<[^>\n]*>|[^\n]*)'
_DIRECTIVE = re.compile(rb"(?:#|%:)" + _GAP + rb"(?:include(?:_next)?|import|embed)\b" + _GAP + _OPERAND, re.DOTALL)
_COMPILERS_OWN = re.compile(rb"<[A-Za-z0-9_]+(?:\.h)?>")


def check_includes(files: Mapping[str, bytes], source: str) -> None:
    """Follows the includes of `source` through `files`. Raises BuildError naming the file and the include."""
    waiting, seen = [source], {source}
    while waiting:
        name = waiting.pop()
        for operand in _DIRECTIVE.findall(_SPLICE.sub(b"", files[name])):
            if _COMPILERS_OWN.fullmatch(operand):
                continue
            included = operand[1:-1].decode("utf-8", "replace")
            if operand[:1] != b'"' or included not in files:
                shown = operand[:200].decode("utf-8", "replace")
                raise BuildError(
                    f"{name}: include of {shown}: it must be one of the plugin's files or the common headers by "
                    "name, or a header of the compiler's as <name.h>"
                )
            if included not in seen:
                seen.add(included)
                waiting.append(included)
