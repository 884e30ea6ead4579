"""Kubernetes quantities (`500m`, `1Gi`) as numbers."""

from decimal import Decimal

from kubernetes.utils.quantity import parse_quantity


def quantity(value: str | int) -> Decimal:
    """Raises ValueError."""
    number: Decimal = parse_quantity(value)  # type: ignore[no-untyped-call]
    return number
