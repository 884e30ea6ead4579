"""The fuzzer's targets: on the corpus, on mutated packets, and shortly on what the fuzzer finds by itself."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from fuzz import run
from fuzz.targets import TARGETS

SECONDS = 8
SEED = 1
INPUTS = sorted(run.CORPUS.glob("*/*"))


@pytest.mark.parametrize("file", INPUTS, ids=lambda file: f"{file.parent.name}-{file.name[:12]}")
def test_what_was_found_once_holds(file: Path) -> None:
    TARGETS[file.parent.name](file.read_bytes())


@st.composite
def mutations(draw: st.DrawFn) -> bytes:
    """A packet of the corpus with some of its bytes changed, taken out or put in."""
    packets = [file.read_bytes() for file in INPUTS if file.parent.name == "codec"]
    data = bytearray(draw(st.sampled_from(packets)))
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, max(0, len(data) - 1)))
        kind = draw(st.integers(0, 2))
        if kind == 0 and data:
            data[at] = draw(st.integers(0, 255))
        elif kind == 1:
            del data[at : at + draw(st.integers(1, 4))]
        else:
            data[at:at] = draw(st.binary(min_size=1, max_size=4))
    return bytes(data)


@settings(max_examples=800, deadline=None)
@given(mutations())
@example(b"")
def test_a_mutated_packet_is_refused_or_means_what_it_says(data: bytes) -> None:
    TARGETS["codec"](data)


def test_every_cut_of_every_packet_is_refused_or_means_what_it_says() -> None:
    for file in INPUTS:
        if file.parent.name == "codec":
            data = file.read_bytes()
            for end in range(len(data)):
                TARGETS["codec"](data[:end])
                body = data[2:end]
                if len(data) < 130 and len(body) < 128:
                    TARGETS["codec"](bytes((data[0], len(body))) + body)  # cut, with a length that says so


@pytest.mark.parametrize("target", sorted(TARGETS))
def test_the_fuzzer_finds_nothing(target: str) -> None:
    done = subprocess.run(
        [sys.executable, run.__file__, target, str(SECONDS), str(SEED)],
        check=False,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=os.environ | {"PYTHONHASHSEED": "0"},
    )
    assert done.returncode == 0, done.stdout[-8000:]
