"""Says what this machine lacks to compile the hot modules, and exits with 1; silent, with 0, when it lacks nothing."""

from __future__ import annotations

import os
import shutil
import sys
import sysconfig
from pathlib import Path

compiler = (os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc").split()[0]
headers = Path(sysconfig.get_path("include")) / "Python.h"

if shutil.which(compiler) is None:
    sys.exit(f"no C compiler ({compiler}); on Debian and Ubuntu: apt-get install gcc libc6-dev")
if not headers.exists():
    sys.exit(f"no headers of this Python ({headers}); on Debian and Ubuntu: apt-get install python3-dev")
