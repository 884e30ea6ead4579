"""`python -m flockmq` is the command `flockmq`."""

from flockmq.cli import main

main()
