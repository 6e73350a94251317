"""Schemas for kubeconform, each in one file: Kubernetes' own from the package `kubernetes-validate`, those of
Prometheus' operator from its custom resource definitions.

    python tests/deploy/schemas.py KUBERNETES_JSON_SCHEMA_FOLDER CUSTOM_RESOURCES_FOLDER OUT
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import yaml

DEFINITIONS = "_definitions.json"
CUSTOM = ("prometheusrules", "servicemonitors")
KINDS = (
    "configmap-v1", "networkpolicy-networking-v1", "poddisruptionbudget-policy-v1", "secret-v1", "service-v1",
    "serviceaccount-v1", "statefulset-apps-v1",
)  # fmt: skip


def standalone(schema: dict[str, Any], definitions: dict[str, Any]) -> dict[str, Any]:
    """Take in every definition that a schema refers to."""
    taken: dict[str, Any] = {}

    def own(part: Any) -> Any:
        if isinstance(part, list):
            return [own(one) for one in part]
        if not isinstance(part, dict):
            return part
        reference = part.get("$ref")
        if isinstance(reference, str):
            name = reference.rpartition("/")[2]
            if name not in taken:
                taken[name] = None  # some refer to themselves
                taken[name] = own(definitions[name])
            return {"$ref": f"#/$defs/{name}"}
        return {key: own(value) for key, value in part.items()}

    return {**own(schema), "$defs": taken}


def strict(part: Any) -> Any:
    """Refuse fields that a custom resource does not have."""
    if isinstance(part, list):
        return [strict(one) for one in part]
    if not isinstance(part, dict):
        return part
    found = {key: strict(value) for key, value in part.items()}
    open_ended = (
        found.get("x-kubernetes-preserve-unknown-fields") or "additionalProperties" in found
    )
    if found.get("type") == "object" and "properties" in found and not open_ended:
        found["additionalProperties"] = False
    return found


def main(kubernetes: Path, custom: Path, out: Path) -> None:
    """Write a schema for each kind that the chart makes."""
    out.mkdir(parents=True, exist_ok=True)
    definitions = json.loads((kubernetes / DEFINITIONS).read_text())["$defs"]
    for kind in KINDS:
        schema = json.loads((kubernetes / f"{kind}.json").read_text())
        (out / f"{kind}.json").write_text(json.dumps(standalone(schema, definitions)))
    for name in CUSTOM:
        found = yaml.safe_load((custom / f"monitoring.coreos.com_{name}.yaml").read_text())["spec"]
        for version in found["versions"]:
            schema = strict(version["schema"]["openAPIV3Schema"])
            schema["properties"]["metadata"] = {"type": "object"}
            kind = found["names"]["kind"].lower()
            (out / f"{kind}-monitoring-{version['name']}.json").write_text(json.dumps(schema))


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:4]))
