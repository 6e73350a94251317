"""Imports that `lint-imports` cannot read: modules named by a string, and the one file for each
client of a server."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterable, Iterator
from functools import cache

from tests.lint.sources import ROOT, Source, sources

NAMED = re.compile(r"(meanstream(?:\.\w+)+)(?::\w+)?")
ONLY_IN = {
    "confluent_kafka": "streaming/kafka/connection/kafka_client.py",
    "google.cloud.pubsub_v1": "pipelines/beam/pubsub/pubsub_client.py",
    "prometheus_client": "streaming/metrics/engine_metrics.py",
    "sqlite3": "streaming/store/database.py",
}
"""Clients, and the file that alone imports each: nothing else depends on its spelling."""
RINGS = tuple(
    f"meanstream.{ring}."
    for ring in (
        "lab.papers",
        "lab.evidence",
        "pipelines.beam",
        "lab.simulation",
        "integrations",
    )
)
"""What stands on the core, which loads it by name."""
STARTED = ("meanstream.pipelines.commands.shard_process",)
"""What runs as a process of its own: whoever starts it imports nothing of it."""


def clients_elsewhere(files: Iterable[Source]) -> Iterator[str]:
    """Report a client that is imported in another file than its own, at the top or in a
    function."""
    for source in files:
        modules: set[str] = set()
        for node in source.nodes:
            if isinstance(node, ast.ImportFrom):
                modules |= {f"{node.module}.{one.name}" for one in node.names}
            elif isinstance(node, ast.Import):
                modules |= {one.name for one in node.names}
        for client, place in ONLY_IN.items():
            if source.path != place and any(
                f"{module}.".startswith(f"{client}.") for module in modules
            ):
                yield f"{source.path} must import {client} from {place}"


def named_modules(source: Source) -> set[str]:
    """Give the modules of the package that strings of a file name, to be imported when they are
    needed."""
    found = {match[1] for _, text in source.strings() if (match := NAMED.fullmatch(text))}
    return {name for name in found if (ROOT / f"{name.replace('.', '/')}.py").exists()}


@cache
def layers() -> tuple[tuple[str, dict[str, int]], ...]:
    """Read each container of a contract of layers, and the layer of each of its children, the
    highest first."""
    found = []
    for contract in tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"][
        "contracts"
    ]:
        if contract["type"] == "layers":
            layer = {
                name.strip(): i
                for i, line in enumerate(contract["layers"])
                for name in re.split("[|:]", line)
            }
            found += [(container, layer) for container in contract["containers"]]
    return tuple(found)


def points_up(user: str, named: str) -> bool:
    """Decide whether a module names one that no layer puts below it."""
    for container, layer in layers():
        child, other = (_child(container, module) for module in (user, named))
        if child in layer and other in layer and child != other and layer[child] >= layer[other]:
            return True
    return False


def _child(container: str, module: str) -> str:
    return (
        module.removeprefix(f"{container}.").split(".")[0]
        if module.startswith(f"{container}.")
        else ""
    )


def strings_that_point_up(files: Iterable[Source]) -> Iterator[str]:
    """Report a module that is named by a string of a module below it."""
    for source in files:
        for named in sorted(named_modules(source)):
            if points_up(source.module, named) and not named.startswith((*RINGS, *STARTED)):
                yield f"{source.path} must not name {named}: it is in a layer above"


def check_imports() -> Iterator[str]:
    """Report what the package imports against the rules."""
    yield from clients_elsewhere(sources())
    yield from strings_that_point_up(sources())
