"""The fuzzer: `python tests/fuzz/run.py TARGET SECONDS [SEED]` (`make fuzz SECONDS=…` runs every target).

Coverage-guided by atheris (libFuzzer) where it is installed; elsewhere Hypothesis draws the bytes, and says so. It
begins with tests/fuzz/corpus/TARGET; what it finds is kept in build/fuzz, and an input that fails is printed and
written there, to be put into the corpus with the mend. Exit code: 0, or another when an input failed.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import Final

FOLDER: Final = Path(__file__).parent
ROOT: Final = FOLDER.parents[1]
CORPUS: Final = FOLDER / "corpus"
FOUND: Final = ROOT / "build" / "fuzz"
INPUT_MAX_BYTES: Final = 1024


def main() -> int:
    sys.path.insert(0, str(FOLDER.parent))
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("target", choices=("codec", "connection"))
    arguments.add_argument("seconds", type=int)
    arguments.add_argument("seed", type=int, nargs="?", default=0, help="the same inputs each time (0: others)")
    asked = arguments.parse_args()
    found = FOUND / asked.target
    found.mkdir(parents=True, exist_ok=True)
    try:
        import atheris  # type: ignore[import-untyped]
    except ImportError:
        sys.stdout.write(f"{asked.target}: atheris has no wheel for this Python; Hypothesis draws the bytes\n")
        return _by_hypothesis(asked.target, asked.seconds, asked.seed)
    with atheris.instrument_imports(include=["flockmq.mqtt", "flockmq.session", "flockmq.routing"]):
        from fuzz.targets import TARGETS
    options = [
        *(sys.argv[0], f"-max_total_time={asked.seconds}", f"-max_len={INPUT_MAX_BYTES}", "-print_final_stats=1"),
        *(
            f"-seed={asked.seed}",
            "-verbosity=0",
            f"-artifact_prefix={found}/failed-",
            str(found),
            str(CORPUS / asked.target),
        ),
    ]
    atheris.Setup(options, TARGETS[asked.target])
    atheris.Fuzz()  # ends the process
    return 0


def _by_hypothesis(target: str, seconds: int, seed: int) -> int:
    from hypothesis import HealthCheck, example, given, settings
    from hypothesis import strategies as st

    from fuzz.targets import TARGETS

    until = time.monotonic() + seconds
    rounds = 0
    check = settings(
        max_examples=200, deadline=None, database=None, derandomize=bool(seed), suppress_health_check=list(HealthCheck)
    )(given(st.binary(max_size=INPUT_MAX_BYTES))(TARGETS[target]))
    for file in sorted((CORPUS / target).iterdir()):
        check = example(file.read_bytes())(check)
    while time.monotonic() < until:
        check()
        rounds += 200
    sys.stdout.write(f"{target}: {rounds} inputs\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
