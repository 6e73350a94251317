"""Events, metrics, the Python names and the registries, as the code has them."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

import meanstream
import meanstream.pipelines.beam.agents.agent_transforms
import meanstream.pipelines.beam.rounds.round_transforms
import meanstream.river
from meanstream.operators.collaboration.registry import COLLABORATIONS, make_collaboration
from meanstream.operators.counters.registry import COUNTERS, FORGETTING
from meanstream.operators.estimators.registry import (
    ESTIMATORS,
    distinct_estimators,
    estimator_class,
)
from meanstream.streaming.events.wire import EVENTS, wire_event_schema
from meanstream.streaming.metrics import engine_metrics
from meanstream.streaming.metrics.collaboration_metrics import (
    CollaborationMetrics,
    PrivateCollaborationMetrics,
)
from meanstream.streaming.metrics.engine_metrics import Metrics
from meanstream.streaming.metrics.private_answers import PrivateMetrics, PrivateRoundsMetrics
from meanstream.streaming.metrics.rounds_metrics import RoundsMetrics, StatisticianMetrics

SHOWN_BY = {
    "Agents": Metrics,
    "Agents, private": PrivateMetrics,
    "Rounds": RoundsMetrics,
    "Rounds, private": PrivateRoundsMetrics,
    "Rounds, statistician's side": StatisticianMetrics,
    "Collaborate": CollaborationMetrics,
    "Collaborate, private": PrivateCollaborationMetrics,
}
KINDS = {
    "counters": "counter",
    "gauges": "gauge",
    "distributions": "histogram",
    "live": "gauge",
    "durations": "histogram",
}


def _table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    cells = [[cell.replace("|", "\\|").replace("\n", " ") for cell in row] for row in rows]
    return "\n".join(f"| {' | '.join(row)} |" for row in [head, ["---"] * len(head), *cells]) + "\n"


def _first(thing: Any) -> str:
    return " ".join((inspect.getdoc(thing) or "").split("\n\n", 1)[0].split())


def _section(title: str, text: str, table: str) -> list[str]:
    return [f"## {title}", "", text, "", table]


def events() -> str:
    """Every event with its fields, by its JSON Schema."""
    sections = []

    for name in EVENTS:
        schema = wire_event_schema(name)
        required = set(schema.get("required", ()))
        rows = [
            _field_row(field, field_schema, required=field in required)
            for field, field_schema in schema["properties"].items()
        ]
        table = _table(("field", "type", "always", ""), rows)
        sections += _section(name, schema.get("description", ""), table)

    return "\n".join(sections)


def _field_row(field: str, schema: dict[str, Any], *, required: bool) -> tuple[str, ...]:
    always = "yes" if required else ""
    meaning = _limits(schema) or schema.get("description", "")
    return f"`{field}`", _type(schema), always, meaning


def _type(what: dict[str, Any]) -> str:
    if "const" in what:
        return f"`{what['const']}`"
    if "enum" in what:
        return ", ".join(f"`{one}`" for one in what["enum"])
    if "anyOf" in what:
        return " or ".join(_type(one) for one in what["anyOf"])
    if "$ref" in what:
        return what["$ref"].rpartition("/")[2]

    name = str(what.get("format") or what.get("type", "any"))
    items = what.get("items")
    return f"{name} of {_type(items)}" if isinstance(items, dict) and items else name


def _limits(what: dict[str, Any]) -> str:
    words = {
        "minimum": "at least",
        "maximum": "at most",
        "exclusiveMinimum": "above",
        "exclusiveMaximum": "below",
    }
    return ", ".join(f"{word} {what[key]}" for key, word in words.items() if key in what)


def metrics() -> str:
    """Every family, by who shows it."""
    sections = []

    for title, kind in SHOWN_BY.items():
        rows = [*_family_rows(kind.families), *_labelled_rows(kind.families)]
        table = _table(("metric", "kind", "what it says"), rows)
        sections += _section(title, _first(kind), table)

    return "\n".join(sections)


def _family_rows(families: Any) -> Iterator[tuple[str, ...]]:
    """Rows of the metrics without labels of their own."""
    for declared, kind in KINDS.items():
        ending = "_total" if declared == "counters" else ""
        for name, text in getattr(families, declared).items():
            yield f"`meanstream_{name}{ending}`", kind, text

    if families.foretells:
        for name, text in engine_metrics.FORECASTS.items():
            yield f"`meanstream_{name}`", "histogram", text


def _labelled_rows(families: Any) -> Iterator[tuple[str, ...]]:
    """Rows of the metrics by reason, partition and client, and those of the process."""
    if families.reasons:
        reasons = ", ".join(f"`{reason}`" for reason in families.reasons)
        text = f"Records that were not used: {reasons}."
        yield "`meanstream_rejects_total{reason}`", "counter", text

    if families.partitions:
        name = "`meanstream_partition_lag_events{topic,partition}`"
        yield name, "gauge", engine_metrics.PARTITION_LAG

    if families.connections:
        yield "`meanstream_kafka_connected{client}`", "gauge", engine_metrics.CONNECTED

    for name in families.process:
        yield f"`{name}`", "gauge or counter", "As the Prometheus client tells it."


def _autodoc(name: str, thing: Any) -> str:
    directive = "autodata"
    if inspect.isclass(thing):
        directive = "autoclass"
    elif callable(thing):
        directive = "autofunction"

    members = ["   :members:"] if directive == "autoclass" else []
    head = [f"## {name.rpartition('.')[2]}", "", "```{eval-rst}", f".. {directive}:: {name}"]
    return "\n".join([*head, *members, "```", ""])


def python() -> str:
    """Write what `import meanstream` hands on."""
    names = [name for name in meanstream.__all__ if name not in ("__version__", "ESTIMATORS")]
    return "\n".join(
        _autodoc(_home(getattr(meanstream, name)), getattr(meanstream, name)) for name in names
    )


def _home(thing: Any) -> str:
    return f"{thing.__module__}.{thing.__qualname__}"


def beam() -> str:
    """Write the public names of both pipelines.

    `meanstream.beam` hands on the transforms among them.
    """
    modules = (
        meanstream.pipelines.beam.agents.agent_transforms,
        meanstream.pipelines.beam.rounds.round_transforms,
    )
    public = {name: getattr(module, name) for module in modules for name in sorted(module.__all__)}

    # What the package itself hands on stands on its own page.
    own = [
        thing
        for name, thing in public.items()
        if name not in meanstream.__all__ and hasattr(thing, "__qualname__")
    ]
    return "\n".join(
        _autodoc(_home(thing), thing) for thing in own if _home(thing).startswith("meanstream")
    )


def river() -> str:
    """Write what `import meanstream.river` hands on."""
    found = [getattr(meanstream.river, name) for name in meanstream.river.__all__]
    return "\n".join(_autodoc(_home(thing), thing) for thing in found)


def estimators() -> str:
    """Write the registry of estimators of a population's mean."""
    head = (
        "name",
        "what it is",
        "what it estimates",
        "its interval assumes",
        "unit",
        "options",
        "module",
    )
    return _table(head, [_estimator_row(name) for name in distinct_estimators()])


def _estimator_row(name: str) -> tuple[str, ...]:
    kind = estimator_class(name)
    module = ESTIMATORS[name].partition(":")[0]
    options = ", ".join(f"`{option}`" for option in sorted(kind.options))

    return (
        f"`{name}`",
        _first(kind),
        kind.estimand,
        kind.assumes,
        kind.privacy_unit,
        options,
        f"`{module}`",
    )


def counters() -> str:
    """Write the registries of counters."""
    rows = [
        (f"`{name}`", _first(kind), where, f"`{kind.__module__}`")
        for where, registry in (("prefix sums", COUNTERS), ("sums that forget", FORGETTING))
        for name, kind in registry.items()
    ]
    return _table(("name", "what it is", "of", "module"), rows)


def collaborations() -> str:
    """Write the registry of ways to collaborate."""
    made = {name: type(make_collaboration(name, lower=0.0, upper=1.0)) for name in COLLABORATIONS}
    rows = [(f"`{name}`", _first(kind), f"`{kind.__module__}`") for name, kind in made.items()]
    return _table(("name", "what it is", "module"), rows)
