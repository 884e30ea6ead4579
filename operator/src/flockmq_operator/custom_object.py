"""What MqttUsers and MqttRebalances have in common as objects, decoded."""

from typing import TypeVar

import msgspec

from flockmq_operator.manifest import Manifest
from flockmq_operator.spec import SpecError

T = TypeVar("T")


class CustomObject(msgspec.Struct, frozen=True):
    body: Manifest
    """As the API server returned it."""

    @property
    def name(self) -> str:
        name: str = self.body["metadata"]["name"]
        return name

    @property
    def created(self) -> str:
        created: str = self.body["metadata"].get("creationTimestamp", "")
        return created

    @property
    def is_deleted(self) -> bool:
        return "deletionTimestamp" in self.body["metadata"]

    @property
    def status(self) -> Manifest:
        status: Manifest = self.body.get("status") or {}
        return status

    def has_finalizer(self, finalizer: str) -> bool:
        return finalizer in self.body["metadata"].get("finalizers", ())


def decode_spec(body: Manifest, kind: type[T]) -> T:
    """Raises SpecError naming the field."""
    try:
        return msgspec.convert(body.get("spec", {}), kind)
    except msgspec.ValidationError as error:
        raise SpecError(
            f"spec{str(error).rpartition('`$')[2].rstrip('`')}: {error}. Mend the field, or install "
            "the CustomResourceDefinition that belongs to this operator."
        ) from None
