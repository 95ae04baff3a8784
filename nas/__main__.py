"""`python -m nas` is the command `nas`."""

from nas.cli import main

main()
