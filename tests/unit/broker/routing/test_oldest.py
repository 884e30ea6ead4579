"""The oldest rows of a full dict are forgotten, some at once."""

import pytest

from flockmq.routing.oldest import forget_oldest


@pytest.mark.parametrize(("rows", "gone"), [(1, 1), (63, 1), (64, 1), (6400, 100)])
def test_the_oldest_go(rows: int, gone: int) -> None:
    numbers = dict.fromkeys(range(rows))
    forget_oldest(numbers)
    assert list(numbers) == list(range(gone, rows))
