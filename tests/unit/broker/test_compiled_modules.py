"""The modules that are meant to run are those that run."""

from __future__ import annotations

import importlib
import os
from pathlib import Path

from flockmq import compiled_modules

EXPECTED = os.environ.get("EXPECT_BUILD", "interpreted")
"""`make test` runs the tests on both; by hand, they are for the sources (`make interpreted`)."""


def test_every_hot_module_that_is_loaded_is_of_the_expected_build() -> None:
    names = [compiled_modules.module_name(source) for source in compiled_modules.hot_sources()]
    assert names
    suffix = ".so" if EXPECTED == "compiled" else ".py"
    loaded = {name: importlib.import_module(name).__file__ or "" for name in names}
    assert not {name: file for name, file in loaded.items() if not file.endswith(suffix)}
    assert compiled_modules.kind() == EXPECTED


def test_each_glob_of_hot_modules_finds_some_and_none_is_an_init() -> None:
    for glob in compiled_modules.HOT_MODULES:
        assert [path for path in compiled_modules.PACKAGE.glob(glob) if path.name != "__init__.py"], glob
    assert "__init__.py" not in {path.name for path in compiled_modules.hot_sources()}


def test_a_source_is_named_as_it_is_imported() -> None:
    assert compiled_modules.module_name(Path("/x/flockmq/mqtt/frame.py"), Path("/x/flockmq")) == "flockmq.mqtt.frame"
