"""The quotas of a spec as the broker tells them."""

import pytest

from flockmq_operator.spec import Amount
from flockmq_operator.users.quotas import UserQuotas


@pytest.mark.parametrize(
    ("amount", "told"),
    [
        (5, 5),
        ("7", 7),
        ("64b", 64),
        ("64KB", 64 * 1024),
        ("1.5mb", 1536 * 1024),
        ("2GB", 2 * 1024**3),
        ("infinity", "infinity"),
        ("0.3KB", "0.3KB"),
        ("1TB", "1TB"),
    ],
)
def test_sizes_are_told_in_bytes_and_what_is_none_is_left_to_the_broker(amount: Amount, told: Amount) -> None:
    assert UserQuotas(max_queued_bytes=amount).told() == {"max_queued_bytes": told}


def test_what_isnt_said_isnt_told() -> None:
    assert UserQuotas().told() == {}
