"""The build's own process: a pickled request on standard input, an Image or an error on standard output."""

from __future__ import annotations

import os
import pickle
import sys


def main() -> None:
    """Builds one image at low priority."""
    os.nice(15)
    answer = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever a compiler prints must not mix with the answer
    files, source, target, defines, cache = pickle.load(sys.stdin.buffer)
    from verifier.drivers.build import build_image
    from verifier.errors import VerifierError

    try:
        result: object = build_image(files, source, target, defines, cache=cache)
    except VerifierError as error:
        result = error
    with answer:
        pickle.dump(result, answer)


if __name__ == "__main__":
    main()
