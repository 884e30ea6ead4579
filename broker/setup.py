"""Compiles the hot modules with mypyc when FLOCKMQ_MYPYC=1; otherwise the package is pure Python."""

from __future__ import annotations

import os
import runpy
from pathlib import Path

from setuptools import setup
from setuptools.extension import Extension

ROOT = Path(__file__).parent


def hot_extensions() -> list[Extension]:
    """One extension group of all hot modules, so that calls between them stay native."""
    if os.environ.get("FLOCKMQ_MYPYC") != "1":
        return []
    from mypyc.build import mypycify

    package = ROOT / "src" / "flockmq"
    sources = runpy.run_path(str(package / "compiled_modules.py"))["hot_sources"](package)
    # `make lint` checks types; a build asks for no configuration and no stubs, so that it is the same everywhere.
    options = ["--config-file=", "--ignore-missing-imports"]
    return mypycify([*options, *map(str, sources)], opt_level="3", debug_level="0", group_name="flockmq")


setup(ext_modules=hot_extensions())
