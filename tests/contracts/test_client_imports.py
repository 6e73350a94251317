"""Each client of a server is imported in one file, so that nothing else depends on its spelling of things."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ONLY_IN = {
    "confluent_kafka": "meanstream/streaming/kafka/client.py",
    "google.cloud.pubsub_v1": "meanstream/pipelines/beam/pubsub/client.py",
    "prometheus_client": "meanstream/streaming/metrics/metrics.py",
    "sqlite3": "meanstream/streaming/store/database.py",
}


def imported_in(package: str, name: str) -> list[str]:
    """Files of a package that import a module, at the top or anywhere inside."""
    found = []
    for path in sorted((ROOT / package).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [alias.name for alias in getattr(node, "names", ())]
            modules = [f"{node.module}.{one}" for one in names] if isinstance(node, ast.ImportFrom) else []
            modules += names if isinstance(node, ast.Import) else []
            if any(f"{module}.".startswith(f"{name}.") for module in modules):
                found.append(path.relative_to(ROOT).as_posix())
    return sorted(set(found))


@pytest.mark.parametrize("name", ONLY_IN)
def test_a_client_is_imported_in_one_file(name: str) -> None:
    found = imported_in("meanstream", name)
    assert found == [ONLY_IN[name]]
