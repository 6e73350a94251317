"""Non-interference every day: small worlds of each kind of run, one command each; the other files
run whole lives."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.noninterference import product, rounds_worlds
from tests.noninterference.agents_worlds import (
    ASKED,
    UNRELEASED,
    at_once,
    private_side,
    releases_as,
)
from tests.noninterference.comparison import Compared, Seen, nothing_differs
from tests.noninterference.rounds_worlds import CHANGES, charged_as

Ports = tuple[int, ...]
AGENTS, USERS = 3, 5


@dataclass(frozen=True)
class First:
    """The world that others are compared with: what was released there, and what was seen."""

    told: dict[Any, Any]
    seen: Seen
    options: dict[str, Any]


def assert_ended_well(seen: Seen, *surfaces: str) -> None:
    """What is compared is not empty."""
    assert {data for name, data in seen.items() if name.endswith("exit code")} == {b"0"}
    assert all(seen[name] for name in surfaces)


@pytest.fixture(scope="module", params=[{}, ASKED], ids=["means", "quantiles"])
def of_agents(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, ports: Ports
) -> First:
    told: dict[Any, Any] = {}
    with releases_as(told):
        seen = at_once(tmp_path_factory.mktemp("agents"), AGENTS, ports, options=request.param)
    assert sum(key[0] != "vote" for key in told) == AGENTS
    files = [
        f"file {role}.jsonl" for role in ("releases", "estimates", "population", "dead_letters")
    ]
    assert_ended_well(seen, *files, "GET /metrics of the metrics", "GET /data of the page")
    return First(told, seen, request.param)


@pytest.mark.parametrize("values", UNRELEASED)
def test_unreleased_values_of_an_agent_reach_nobody_else(
    values: str, of_agents: First, tmp_path: Path, ports: Ports
) -> None:
    other = at_once(
        tmp_path, AGENTS, ports, options=of_agents.options, unreleased=UNRELEASED[values]
    )
    assert nothing_differs(of_agents.seen, other)


def test_nor_do_all_of_its_values_under_the_same_releases(
    of_agents: First, tmp_path: Path, ports: Ports
) -> None:
    with releases_as(of_agents.told):
        other = at_once(
            tmp_path, AGENTS, ports, options=of_agents.options, unreleased=2.75, all_of_it=True
        )
    assert nothing_differs(of_agents.seen, other)


def test_released_values_do_reach_others(of_agents: First, tmp_path: Path, ports: Ports) -> None:
    """The comparison can fail: with other releases it does."""
    other = at_once(
        tmp_path, AGENTS, ports, options=of_agents.options, unreleased=2.75, all_of_it=True
    )
    assert Compared(of_agents.seen, other)["file releases.jsonl"] > 0


def test_nothing_unreleased_leaves_a_private_side(tmp_path: Path) -> None:
    first, other = (
        private_side(tmp_path / str(v), AGENTS, unreleased=v)
        for v in (None, UNRELEASED["far outside"])
    )
    assert_ended_well(first, "file releases.jsonl", "file dead_letters.jsonl")
    assert nothing_differs(first, other)


@pytest.fixture(scope="module")
def of_rounds(tmp_path_factory: pytest.TempPathFactory, ports: Ports) -> First:
    told: dict[Any, Any] = {}
    with charged_as(told):
        seen = rounds_worlds.at_once(
            tmp_path_factory.mktemp("rounds"), USERS, ports, None, "one_shot"
        )
    files = [f"file {role}.jsonl" for role in ("reports", "means")]
    assert_ended_well(seen, *files, "GET /metrics of the metrics", "GET /data of the page")
    return First(told, seen, {})


@pytest.mark.parametrize("changed", CHANGES)
def test_what_a_user_sends_reaches_nobody_but_by_its_report(
    changed: str, of_rounds: First, tmp_path: Path, ports: Ports
) -> None:
    with charged_as(of_rounds.told):
        other = rounds_worlds.at_once(tmp_path, USERS, ports, changed, "one_shot")
    assert nothing_differs(of_rounds.seen, other)


def test_a_picture_is_drawn_once_of_the_same_data_and_again_of_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Else a picture could hide what differs between two worlds."""
    drawn: list[str] = []

    def picture(name: str, draw: Any, **_: Any) -> str:
        drawn.append(name)
        return f"{name} {len(drawn)}"

    monkeypatch.setattr(product, "_picture", picture)
    with product.same_clock_and_coins():
        budgets = [{"labels": ["0 %"], "horizon": 3, "agents": [n]} for n in (-1, -2, -1)]
        pictures = [product.charts.budget_chart(found, "agents") for found in budgets]
    assert (pictures[0], len(drawn)) == (pictures[2], 2)
    assert pictures[0] != pictures[1]
