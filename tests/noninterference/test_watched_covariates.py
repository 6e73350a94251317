"""Non-interference with public covariates: attributes are public, and what they are learned from
is releases alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from meanstream.operators.agents.agents import Agents
from meanstream.streaming.agents.estimates import KnownCovariates
from tests.noninterference.agents_worlds import (
    FEW,
    UNRELEASED,
    Told,
    at_once,
    federated,
    on_beam,
    releases_as,
    write_covariates,
)
from tests.noninterference.comparison import Compared, Seen, nothing_differs

Ports = tuple[int, ...]
COVARIATES: dict[str, Any] = {"covariates": "private-attributes.csv"}


def on_the_engine(folder: Path, ports: Ports, **stream: Any) -> Seen:
    folder.mkdir()
    write_covariates(folder / COVARIATES["covariates"], FEW)
    return at_once(folder, FEW, ports, options=COVARIATES, **stream)


def assert_effects_are_learned(seen: Seen) -> None:
    assert seen["file estimates.jsonl"].count(b'"moved_by_covariates":') == FEW - 1
    population = json.loads(seen["file population.jsonl"].splitlines()[-1])
    names = [one["name"] for one in population["fitted"]["covariates"]["attributes"]]
    assert names[:2] == ["kind", "size"]


def test_unreleased_values_change_no_effect_and_no_answer(tmp_path: Path, ports: Ports) -> None:
    first = on_the_engine(tmp_path / "first", ports)
    assert_effects_are_learned(first)
    values = {name: UNRELEASED[name] for name in ("most", "far outside")}
    others = [
        on_the_engine(tmp_path / name, ports, unreleased=value) for name, value in values.items()
    ]
    assert nothing_differs(first, *others)


def test_neither_do_values_under_releases_that_are_the_same(tmp_path: Path, ports: Ports) -> None:
    told: Told = {}
    with releases_as(told):
        first = on_the_engine(tmp_path / "first", ports)
        other = on_the_engine(tmp_path / "other", ports, unreleased=2.75, all_of_it=True)
    assert_effects_are_learned(first)
    assert nothing_differs(first, other)


def test_effects_of_what_agents_have_and_did_not_release_are_caught(
    tmp_path: Path, ports: Ports, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Twin: effects are learned from exact means."""
    begin, add = Agents.__init__, KnownCovariates.of_releases
    running: list[Agents] = []

    def begun(self: Agents, *given: Any, **named: Any) -> None:
        begin(self, *given, **named)
        running.append(self)

    def leaking(self: KnownCovariates, releases: Any, names: Any) -> Any:
        own = running[-1].own()
        exact = dict(zip(own.agent.tolist(), own.mean.tolist(), strict=True))
        releases.mean[:] = [exact[agent] for agent in releases.agent.tolist()]
        return add(self, releases, names)

    monkeypatch.setattr(Agents, "__init__", begun)
    monkeypatch.setattr(KnownCovariates, "of_releases", leaking)
    first = on_the_engine(tmp_path / "first", ports)
    other = on_the_engine(tmp_path / "other", ports, unreleased=UNRELEASED["most"])
    differing = Compared(first, other)
    assert differing["file estimates.jsonl"] > 0
    assert differing["file population.jsonl"] > 0


def test_an_organization_with_covariates_learns_nothing_of_anothers_unreleased_values(
    tmp_path: Path, ports: Ports
) -> None:
    worlds = []
    for name, unreleased in (("first", None), ("other", 1e300)):
        folder = tmp_path / name
        folder.mkdir()
        write_covariates(folder / COVARIATES["covariates"], FEW, prefixes="ab")
        told = {**COVARIATES, "agent": "agent"}
        worlds.append(federated(folder, FEW, ports, told=told, unreleased=unreleased))
    first, other = worlds
    assert first["answers of b: standard output"].count(b'"moved_by_covariates":') == FEW
    assert nothing_differs(first, other)


def test_neither_does_a_pipeline(tmp_path: Path) -> None:
    worlds = []
    for name, unreleased in (("first", None), ("other", UNRELEASED["most"])):
        folder = tmp_path / name
        folder.mkdir()
        write_covariates(folder / COVARIATES["covariates"], FEW)
        worlds.append(on_beam(folder, FEW, options=COVARIATES, unreleased=unreleased))
    first, other = worlds
    assert first["file estimates.first.jsonl"].count(b'"moved_by_covariates":') == FEW - 1
    assert nothing_differs(first, other)
