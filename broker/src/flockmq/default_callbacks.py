"""Defaults of callbacks: called until the node is assembled, or where no listener is needed."""

from __future__ import annotations


def ignore(*_: object) -> None:
    """No listener."""


def never(*_: object) -> bool:
    return False
