"""`python -m flockmq` runs the command `flockmq`."""

from flockmq.cli import main

main()
