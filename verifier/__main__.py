"""`python -m verifier` is the command line."""

from verifier.cli import main

main()
