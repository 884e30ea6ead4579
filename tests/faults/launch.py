"""`python -m faults.launch run …` is `flockmq run …`, with a bug in it if asked for: FAULTS_BUG names one of those in
simulation/seeded/.
"""

from __future__ import annotations

import os


def main() -> None:
    from flockmq import cli

    if bug := os.environ.get("FAULTS_BUG"):
        from simulation import bugs

        bugs.install(bug)
    cli.main()


if __name__ == "__main__":
    main()
