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


@pytest.fixture(scope="module")
def imported() -> dict[str, set[str]]:
    """What each file of the package imports, at the top or anywhere inside."""
    found = {}
    for path in sorted((ROOT / "meanstream").rglob("*.py")):
        modules: set[str] = set()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom):
                modules |= {f"{node.module}.{one.name}" for one in node.names}
            elif isinstance(node, ast.Import):
                modules |= {one.name for one in node.names}
        found[path.relative_to(ROOT).as_posix()] = modules
    return found


@pytest.mark.parametrize("name", ONLY_IN)
def test_a_client_is_imported_in_one_file(name: str, imported: dict[str, set[str]]) -> None:
    files = [path for path, modules in imported.items() if any(f"{m}.".startswith(f"{name}.") for m in modules)]
    assert files == [ONLY_IN[name]]
