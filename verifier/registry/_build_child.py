"""The build's own process: a pickled request on standard input, an Image or an error on standard output."""

from __future__ import annotations

import os
import pickle
import signal
import sys
import threading


def main() -> None:
    """Builds one image at low priority."""
    os.nice(15)
    threading.Thread(target=_end_with_parent, args=(int(sys.argv[1]),), daemon=True).start()
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


def _end_with_parent(life: int) -> None:
    """Waits until the parent is gone, then ends this session: a compiler must not outlive its daemon."""
    os.read(life, 1)
    os.killpg(0, signal.SIGKILL)


if __name__ == "__main__":
    main()
