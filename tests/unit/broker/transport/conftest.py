from __future__ import annotations

from pathlib import Path

import pytest

from unit.broker.transport.pki import Pki


@pytest.fixture
def pki(tmp_path: Path) -> Pki:
    return Pki(tmp_path)
