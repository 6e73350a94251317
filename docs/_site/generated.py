"""Events, metrics, the Python names and the registries, as the code has them."""

from __future__ import annotations

import inspect
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


def events() -> str:
    """Every event with its fields, by its JSON Schema."""
    parts = []
    for name in EVENTS:
        schema = wire_event_schema(name)
        required = set(schema.get("required", ()))
        rows = [
            (
                f"`{field}`",
                _type(what),
                "yes" if field in required else "",
                _limits(what) or what.get("description", ""),
            )
            for field, what in schema["properties"].items()
        ]
        parts += [
            f"## {name}",
            "",
            schema.get("description", ""),
            "",
            _table(("field", "type", "always", ""), rows),
        ]
    return "\n".join(parts)


def _type(what: dict[str, Any]) -> str:
    if "const" in what:
        return f"`{what['const']}`"
    if "enum" in what:
        return ", ".join(f"`{one}`" for one in what["enum"])
    if "anyOf" in what:
        return " or ".join(_type(one) for one in what["anyOf"])
    if "$ref" in what:
        return what["$ref"].rpartition("/")[2]
    inner = (
        f" of {_type(what['items'])}"
        if isinstance(what.get("items"), dict) and what["items"]
        else ""
    )
    return str(what.get("format") or what.get("type", "any")) + inner


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
    parts = []
    for title, kind in SHOWN_BY.items():
        rows = [
            (f"`meanstream_{name}{'_total' if of == 'counters' else ''}`", KINDS[of], text)
            for of in KINDS
            for name, text in getattr(kind.families, of).items()
        ]
        if kind.families.foretells:
            rows += [
                (f"`meanstream_{name}`", "histogram", text)
                for name, text in engine_metrics.FORECASTS.items()
            ]
        if kind.families.reasons:
            reasons = ", ".join(f"`{reason}`" for reason in kind.families.reasons)
            rows.append(
                (
                    "`meanstream_rejects_total{reason}`",
                    "counter",
                    f"Records that were not used: {reasons}.",
                )
            )
        if kind.families.partitions:
            rows.append(
                (
                    "`meanstream_partition_lag_events{topic,partition}`",
                    "gauge",
                    engine_metrics.PARTITION_LAG,
                )
            )
        if kind.families.connections:
            rows.append(("`meanstream_kafka_connected{client}`", "gauge", engine_metrics.CONNECTED))
        rows += [
            (f"`{name}`", "gauge or counter", "As the Prometheus client tells it.")
            for name in kind.families.process
        ]
        parts += [
            f"## {title}",
            "",
            _first(kind),
            "",
            _table(("metric", "kind", "what it says"), rows),
        ]
    return "\n".join(parts)


def _autodoc(name: str, thing: Any) -> str:
    kind = (
        "autoclass" if inspect.isclass(thing) else "autofunction" if callable(thing) else "autodata"
    )
    members = ["   :members:"] if kind == "autoclass" else []
    return "\n".join(
        [
            f"## {name.rpartition('.')[2]}",
            "",
            "```{eval-rst}",
            f".. {kind}:: {name}",
            *members,
            "```",
            "",
        ]
    )


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
    found = {name: getattr(module, name) for module in modules for name in sorted(module.__all__)}
    own = [
        thing
        for name, thing in found.items()
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
    rows = []
    for name in distinct_estimators():
        kind = estimator_class(name)
        place = f"`{ESTIMATORS[name].partition(':')[0]}`"
        options = ", ".join(f"`{one}`" for one in sorted(kind.options))
        rows.append(
            (
                f"`{name}`",
                _first(kind),
                kind.estimand,
                kind.assumes,
                kind.privacy_unit,
                options,
                place,
            )
        )
    head = (
        "name",
        "what it is",
        "what it estimates",
        "its interval assumes",
        "unit",
        "options",
        "module",
    )
    return _table(head, rows)


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
