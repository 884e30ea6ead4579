"""A core's tables leave it as files, for a backup."""

from __future__ import annotations

from pathlib import Path
from typing import BinaryIO

import pytest

from flockmq.auth.admin import Missing
from flockmq.management.guard import role_for
from flockmq.management.tables import PIECE_BYTES, routes
from flockmq.management.view import TablesView
from unit.broker.management.harness import serving


class Saved(TablesView):
    def __init__(self, folder: Path) -> None:
        self.folder = folder

    async def saved(self, shard: str) -> BinaryIO:
        if shard != "route":
            raise Missing(f"there is no shard {shard!r}")
        return (self.folder / shard).open("rb")


@pytest.mark.parametrize("size", [0, 1, PIECE_BYTES, 3 * PIECE_BYTES + 1])
async def test_they_come_as_they_are_saved(tmp_path: Path, size: int) -> None:
    content = bytes(number % 251 for number in range(size))
    (tmp_path / "route").write_bytes(content)
    async with serving(routes, Saved(tmp_path)) as http, http.get("/api/v1/tables/route") as response:
        assert (response.status, response.content_length) == (200, size)
        assert await response.read() == content


async def test_what_isnt_saved_is_said(tmp_path: Path) -> None:
    async with serving(routes, Saved(tmp_path)) as http, http.get("/api/v1/tables/other") as response:
        assert response.status == 404
        assert "there is no shard 'other'" in (await response.json())["error"]


def test_they_are_for_admins_since_hashes_of_passwords_are_in_them() -> None:
    assert role_for("GET", "/api/v1/tables/auth") == "admin"
