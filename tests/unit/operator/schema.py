"""As much of the API server's treatment of a custom resource as the tests need: structural schemas, without CEL."""

import copy
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[3]
CRD = yaml.safe_load((ROOT / "crds/mqttclusters.yaml").read_text())
SCHEMA: dict[str, Any] = CRD["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
USER_CRD = yaml.safe_load((ROOT / "crds/mqttusers.yaml").read_text())
USER_SCHEMA: dict[str, Any] = USER_CRD["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
REBALANCE_CRD = yaml.safe_load((ROOT / "crds/mqttrebalances.yaml").read_text())
REBALANCE_SCHEMA: dict[str, Any] = REBALANCE_CRD["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
TYPES: dict[str, Any] = {
    "object": dict, "array": list, "string": str, "integer": int, "number": int | float, "boolean": bool
}  # fmt: skip


def with_defaults(value: Any, schema: dict[str, Any]) -> Any:
    if isinstance(value, dict):
        filled = dict(value)
        for name, below in schema.get("properties", {}).items():
            if name not in filled and "default" in below:
                filled[name] = copy.deepcopy(below["default"])
            if name in filled:
                filled[name] = with_defaults(filled[name], below)
        return filled
    if isinstance(value, list):
        return [with_defaults(item, schema["items"]) for item in value]
    return value


def violations(value: Any, schema: dict[str, Any], path: str = "") -> Iterator[str]:
    """Where `value` isn't what `schema` admits; unknown fields are violations, as with `kubectl --validate=strict`."""
    if schema.get("x-kubernetes-int-or-string"):
        if isinstance(value, str) and not re.search(schema.get("pattern", ""), value):
            yield f"{path}: {value!r} doesn't match"
        return
    expected = TYPES[schema["type"]]
    if not isinstance(value, expected) or (isinstance(value, bool) and expected is not bool):
        yield f"{path}: {value!r} is no {schema['type']}"
        return
    if "enum" in schema and value not in schema["enum"]:
        yield f"{path}: {value!r} is none of {schema['enum']}"
    if isinstance(value, int | float) and not schema.get("minimum", value) <= value <= schema.get("maximum", value):
        yield f"{path}: {value} is out of bounds"
    if isinstance(value, str):
        if not schema.get("minLength", 0) <= len(value) <= schema.get("maxLength", len(value)):
            yield f"{path}: length of {value!r}"
        if not re.search(schema.get("pattern", ""), value):
            yield f"{path}: {value!r} doesn't match {schema['pattern']}"
    if isinstance(value, list):
        if not schema.get("minItems", 0) <= len(value) <= schema.get("maxItems", len(value)):
            yield f"{path}: {len(value)} items"
        for item in value:
            yield from violations(item, schema["items"], f"{path}[]")
    if isinstance(value, dict):
        for name in schema.get("required", ()):
            if name not in value:
                yield f"{path}.{name}: required"
        known = schema.get("properties", {})
        if "properties" in schema or "additionalProperties" in schema:
            for name, below in value.items():
                if name in known:
                    yield from violations(below, known[name], f"{path}.{name}")
                elif "additionalProperties" in schema:
                    yield from violations(below, schema["additionalProperties"], f"{path}.{name}")
                elif not schema.get("x-kubernetes-preserve-unknown-fields"):
                    yield f"{path}.{name}: unknown field"
