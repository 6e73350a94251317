"""The list of surfaces is complete: it is compared with the product; and what it lists as compared,
worlds use."""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
import re
from collections.abc import Callable, Iterator
from dataclasses import fields, make_dataclass
from pathlib import Path
from typing import Any

import apache_beam as beam
import pytest
import typer

import meanstream.pipelines
from meanstream.pipelines.beam.agents import agent_transforms as beam_agents
from meanstream.pipelines.beam.worker import beam_metrics
from meanstream.pipelines.commands.main import app
from meanstream.pipelines.options.declaration import Declared, declared_of_command
from meanstream.pipelines.page import page_server as server
from meanstream.streaming import open_sink
from meanstream.streaming.engine.engine_health import EngineHealth
from meanstream.streaming.events import wire
from meanstream.streaming.events.base import PrivateEvent
from meanstream.streaming.events.wire import EVENTS, Release
from meanstream.streaming.metrics import metrics_server
from meanstream.streaming.metrics.collaboration_metrics import (
    CollaborationMetrics,
    PrivateCollaborationMetrics,
)
from meanstream.streaming.metrics.engine_metrics import FORECASTS, Metrics
from meanstream.streaming.metrics.private_answers import PrivateMetrics, PrivateRoundsMetrics
from meanstream.streaming.metrics.rounds_metrics import RoundsMetrics, StatisticianMetrics
from meanstream.streaming.sinks import sink_protocol as group
from tests.noninterference import agents_worlds, kafka_worlds, rounds_worlds, surfaces
from tests.noninterference.surfaces import Reader

ADD = "a new one belongs into tests/noninterference/surfaces.py, and into a world that compares its bytes"
WORLDS = "".join(map(inspect.getsource, (agents_worlds, rounds_worlds, kafka_worlds)))
ELSEWHERE = "elsewhere: "
COMPARED_ELSEWHERE = ("settings only", "made-up data", "public data", "no data")

# -- what there is in the product ------------------------------------------------------------------------------------


def walk(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    """Every command that can be called, with its click object."""
    below = getattr(command, "commands", {})
    if not below or getattr(command, "invoke_without_command", False):
        yield " ".join(path), command
    for name, one in below.items():
        yield from walk(one, (*path, name))


def commands() -> set[str]:
    return {name for name, _ in walk(typer.main.get_command(app))}


def options() -> set[str]:
    """Options that are declared to show something, and whatever is not declared."""
    return {parameter.name for _, one in walk(typer.main.get_command(app)) for parameter in one.params
            if _shows(parameter, declared_of_command(one).get(parameter.name))}  # fmt: skip


def _shows(parameter: Any, declared: Declared | None) -> bool:
    known = parameter.param_type_name == "argument" and parameter.name in surfaces.ARGUMENTS
    return not known if declared is None else declared.shows


def roles() -> set[str]:
    return {field.name for field in fields(group.Sinks)}


def events_with_readers() -> set[tuple[str, bool]]:
    return {(name, issubclass(kind, PrivateEvent)) for name, kind in EVENTS.items()}


def metrics_of(kind: type[Metrics]) -> set[str]:
    states = {"kafka_connected"} if kind.families.connections else set()
    states |= FORECASTS.keys() if kind.families.foretells else set()
    states |= {"partition_lag_events"} if kind.families.partitions else set()
    return {
        *kind.families.counters,
        *kind.families.gauges,
        *kind.families.distributions,
        *kind.families.durations,
        *kind.families.live,
        *kind.families.process,
        *states,
    }


def paths_of_the_metrics() -> set[str]:
    """The server names its paths to whoever asks for another; of an engine that has not begun."""
    health = EngineHealth()
    settings = type("Settings", (), {"lower": 0.0, "upper": 1.0, "horizon": 3})()
    answer = metrics_server._application(Metrics(settings=settings, health=health), health)
    said = b"".join(answer({"PATH_INFO": "/x", "REQUEST_METHOD": "GET"}, lambda *_: None)).decode()
    return set(re.findall(r"/\w+", said))


def routes_of_the_page() -> set[str]:
    """Whatever a path is compared with, in the server of the page."""
    compared = {
        node.value
        for node in ast.walk(ast.parse(inspect.getsource(server)))
        if isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and node.value.startswith("/")
    }
    return compared - {"//", "/?token="}


def transforms() -> set[str]:
    """Beam's transforms, whose outputs somebody can write anywhere."""
    found = set()
    for module in pkgutil.walk_packages(meanstream.pipelines.__path__, "meanstream.pipelines."):
        there = importlib.import_module(module.name)
        found |= {
            kind.__name__
            for kind in vars(there).values()
            if inspect.isclass(kind)
            and issubclass(kind, beam.PTransform)
            and kind.__module__ == module.name
        }
    return found


LISTS: dict[str, tuple[Callable[[], set[Any]], set[Any]]] = {
    "commands": (commands, set(surfaces.COMMANDS)),
    "options": (options, set(surfaces.OUTPUT_OPTIONS)),
    "roles of sinks": (roles, set(surfaces.SINKS)),
    "kinds of sinks": (lambda: set(open_sink.SINKS), set(surfaces.SINK_KINDS)),
    "events": (
        events_with_readers,
        {(name, reader is not Reader.EVERYBODY) for name, reader in surfaces.EVENTS.items()},
    ),
    "metrics of agents": (lambda: metrics_of(Metrics), surfaces.PUBLIC_METRICS["Metrics"]),
    "metrics of rounds": (
        lambda: metrics_of(RoundsMetrics),
        surfaces.PUBLIC_METRICS["RoundsMetrics"],
    ),
    "metrics of a statistician": (
        lambda: metrics_of(StatisticianMetrics),
        surfaces.PUBLIC_METRICS["StatisticianMetrics"],
    ),
    "metrics of a collaboration": (
        lambda: metrics_of(CollaborationMetrics),
        surfaces.PUBLIC_METRICS["CollaborationMetrics"],
    ),
    "private metrics of a collaboration": (
        lambda: metrics_of(PrivateCollaborationMetrics),
        surfaces.PRIVATE_COLLABORATION_METRICS,
    ),
    "private metrics of agents": (lambda: metrics_of(PrivateMetrics), surfaces.PRIVATE_METRICS),
    "private metrics of rounds": (
        lambda: metrics_of(PrivateRoundsMetrics),
        surfaces.PRIVATE_ROUNDS_METRICS,
    ),
    "metrics of Beam": (
        lambda: {*beam_metrics.COUNTERS, *beam_metrics.DISTRIBUTIONS},
        surfaces.PUBLIC_METRICS["Beam"],
    ),
    "paths of the metrics": (paths_of_the_metrics, set(surfaces.METRICS_PATHS)),
    "routes of the page": (routes_of_the_page, set(surfaces.PAGE_ROUTES)),
    "transforms": (transforms, set(surfaces.TRANSFORMS)),
}


@pytest.mark.parametrize("what", LISTS)
def test_all_that_there_is_is_listed(what: str) -> None:
    found, listed = LISTS[what]
    assert found() == listed, ADD


def test_the_page_answers_one_method() -> None:
    assert {name for name in vars(server._Handler) if name.startswith("do_")} == {"do_GET"}


def test_worlds_use_what_is_listed_as_compared() -> None:
    """Each option that shows something, each command that reads data and each kind of place stands
    in a world."""
    typed = {name for name, where in surfaces.OUTPUT_OPTIONS.items() if where == "worlds"} - {
        "as_json"
    }
    unused = {
        name
        for name in typed
        if not re.search(rf"\b{name}\b\W{{0,2}}[=:]|--{name}\b|\"{name}\"", WORLDS)
    }
    called = {name for name, where in surfaces.COMMANDS.items() if where not in COMPARED_ELSEWHERE}
    others = [
        where
        for where in (*surfaces.COMMANDS.values(), *surfaces.SINK_KINDS.values())
        if ELSEWHERE in where
    ]
    assert [where for where in others if not Path(where.removeprefix(ELSEWHERE)).is_file()] == []
    called = {name for name in called if ELSEWHERE not in surfaces.COMMANDS[name]}
    words = " ".join(WORLDS.split())
    unused |= {name for name in called if '"' + name.replace(" ", '", "') + '"' not in words}
    unused |= {
        kind
        for kind, where in surfaces.SINK_KINDS.items()
        if ELSEWHERE not in where
        and f'{kind.rstrip(":")}"' not in WORLDS
        and f"{kind}//" not in WORLDS
    }
    assert not unused


def names_of_tests(path: Path) -> set[str]:
    """The tests of a file by name."""
    tree = ast.parse(path.read_text())
    found = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
    return {node.name for node in found if node.name.startswith("test_")}


def missing_proofs() -> list[str]:
    """Rows whose test is not there."""
    here = Path(__file__).parent
    found = []
    for row, proof in surfaces.PROOFS.items():
        file, _, test = proof.test.partition("::")
        if not (here / file).is_file() or test not in names_of_tests(here / file):
            found.append(row)
    return found


def test_every_surface_names_the_test_that_proves_it() -> None:
    assert missing_proofs() == []
    assert {"frames", "river", "federated sites", "agents with covariates"} <= {*surfaces.PROOFS}


def test_a_proof_that_is_no_test_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Known bad: a file, and a function of a file, that are not there."""
    right = surfaces.PROOFS["rounds"]
    file = right.test.partition("::")[0]
    for wrong in ("test_watched_none.py::test_x", f"{file}::test_of_nothing"):
        monkeypatch.setitem(surfaces.PROOFS, "rounds", right._replace(test=wrong))
        assert missing_proofs() == ["rounds"]


def test_the_page_on_privacy_lists_the_surfaces() -> None:
    """docs/privacy.md has the rows of the list, in its order and words."""
    page = (Path(__file__).parents[2] / "docs" / "privacy.md").read_text()
    table = page.partition("<!-- surfaces: ")[2].split("\n\n")[0].splitlines()[3:]
    rows = [f"| {row} | {one.differs} | `{one.test}` |" for row, one in surfaces.PROOFS.items()]
    assert table == rows


# -- known-bad twins: of each list, one that has more ----------------------------------------------------------------


def one_more_command(patch: pytest.MonkeyPatch) -> None:
    def leak(*, leak_to: str = "-") -> None:
        """Write down everything."""

    patch.setattr(
        app,
        "registered_commands",
        [*app.registered_commands, typer.models.CommandInfo("leak", callback=leak)],
    )


def one_more_role(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(
        group,
        "Sinks",
        make_dataclass(
            "Sinks", [("raw", object, None)], bases=(group.Sinks,), kw_only=True, frozen=True
        ),
    )


def one_more_route(patch: pytest.MonkeyPatch) -> None:
    source = inspect.getsource(server) + "\ndef leak(path):\n    return path == '/leak'\n"
    patch.setattr(inspect, "getsource", lambda _: source)


def one_more_path(patch: pytest.MonkeyPatch) -> None:
    text = metrics_server._text
    patch.setattr(
        metrics_server, "_text", lambda start, status, line: text(start, status, f"{line}, /leak")
    )


def one_more_transform(patch: pytest.MonkeyPatch) -> None:
    leak = type("Leak", (beam.PTransform,), {"__module__": beam_agents.__name__})
    patch.setattr(beam_agents, "Leak", leak, raising=False)


def one_more_in(
    table: dict[str, Any], value: Any = "Leaks."
) -> Callable[[pytest.MonkeyPatch], None]:
    return lambda patch: patch.setitem(table, "leak", value)


TWINS: dict[str, Callable[[pytest.MonkeyPatch], None]] = {
    "commands": one_more_command,
    "options": one_more_command,
    "roles of sinks": one_more_role,
    "kinds of sinks": one_more_in(open_sink.SINKS),
    "events": one_more_in(wire.EVENTS, Release),
    "metrics of agents": one_more_in(Metrics.families.gauges),
    "metrics of rounds": one_more_in(RoundsMetrics.families.gauges),
    "metrics of a statistician": one_more_in(StatisticianMetrics.families.gauges),
    "metrics of a collaboration": one_more_in(CollaborationMetrics.families.gauges),
    "private metrics of a collaboration": one_more_in(
        PrivateCollaborationMetrics.families.counters
    ),
    "private metrics of agents": one_more_in(PrivateMetrics.families.counters),
    "private metrics of rounds": one_more_in(PrivateRoundsMetrics.families.counters),
    "metrics of Beam": one_more_in(beam_metrics.COUNTERS),
    "paths of the metrics": one_more_path,
    "routes of the page": one_more_route,
    "transforms": one_more_transform,
}


@pytest.mark.parametrize("what", LISTS)
def test_one_that_is_added_without_being_listed_is_found(
    what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    TWINS[what](monkeypatch)
    found, listed = LISTS[what]
    assert len(found() - listed) == 1
