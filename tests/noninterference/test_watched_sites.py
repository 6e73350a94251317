"""Non-interference between organizations, and on Beam: one's unreleased values reach nobody else,
to the byte."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.noninterference.agents_worlds import (
    FEW,
    MEMORIES,
    MOVED,
    UNRELEASED,
    asking_each_other,
    federated,
    on_beam,
)
from tests.noninterference.comparison import Seen, nothing_differs


def assert_ended_well(seen: Seen) -> None:
    assert {data for name, data in seen.items() if name.endswith("exit code")} == {b"0"}


def test_an_organization_learns_nothing_of_anothers_unreleased_values(
    tmp_path: Path, ports: tuple[int, ...]
) -> None:
    """Nor does anybody of its own: of what is served there the operator's figures alone may
    differ."""
    first, other = (
        federated(tmp_path / "first", 30, ports),
        federated(tmp_path / "other", 30, ports, unreleased=1e300),
    )
    assert_ended_well(first)
    assert b"meanstream_releasing_agents 60.0" in first["GET /metrics of the metrics"]
    assert b"meanstream_released_half_width_median 0" in first["GET /metrics of the metrics"]
    assert b'"kind":"collaborate"' in first["GET /data of the page"]
    assert first["answers of b: standard output"].count(b"\n") == 30
    assert nothing_differs(first, other)


def test_nor_where_agents_are_told_quantiles(tmp_path: Path, ports: tuple[int, ...]) -> None:
    how: dict[str, Any] = {"released": {"exceeds": "1"}, "told": {"quantiles": ".5"}}
    first, other = (
        federated(tmp_path / str(v), 30, ports, unreleased=v, **how) for v in (None, 1e300)
    )
    assert_ended_well(first)
    assert first["answers of b: standard output"].count(b'"quantiles":') == 30
    assert first["file both.jsonl"].count(b'"histogram":') == 60
    assert nothing_differs(first, other)


@pytest.mark.parametrize(
    "agents", [3, FEW, *(pytest.param(n, marks=pytest.mark.full) for n in (300, 20_000))]
)
def test_a_pipeline_shows_nothing_of_unreleased_values(agents: int, tmp_path: Path) -> None:
    first, other = (
        on_beam(tmp_path / "first", agents),
        on_beam(tmp_path / "other", agents, unreleased=1e300),
    )
    assert_ended_well(first)
    assert first["file estimates.first.jsonl"].count(b"\n") == agents - 1
    assert first["file releases.first.jsonl"] == first["file releases.again.jsonl"]
    for surface in ("display data", "job graph", "counters"):
        assert first[surface]
    assert nothing_differs(first, other)


@pytest.mark.parametrize("memory", MEMORIES)
def test_neither_does_one_of_agents_who_forget_and_whose_mean_has_moved(
    memory: str, tmp_path: Path
) -> None:
    how: dict[str, Any] = {"options": MEMORIES[memory], **MOVED}
    first, other = (
        on_beam(tmp_path / str(most), 3, unreleased=most, **how)
        for most in (None, UNRELEASED["most"])
    )
    assert first["file releases.first.jsonl"].count(b"\n") == 3 * 6
    assert nothing_differs(first, other)


def test_neither_does_one_of_agents_who_are_told_quantiles(tmp_path: Path) -> None:
    how: dict[str, Any] = {"options": {"quantiles": ".5", "exceeds": "1"}}
    first, other = (
        on_beam(tmp_path / str(most), 3, unreleased=most, **how)
        for most in (None, UNRELEASED["most"])
    )
    assert_ended_well(first)
    assert first["file releases.first.jsonl"].count(b'"histogram":{"number":1,"samples":10,') == 3
    assert first["file estimates.first.jsonl"].count(b'"quantiles":[{"quantile":0.5,') == 2
    assert nothing_differs(first, other)


@pytest.mark.parametrize("agents", [3, pytest.param(30, marks=pytest.mark.full)])
def test_neither_do_agents_who_ask_each_other(agents: int) -> None:
    first, other = asking_each_other(agents), asking_each_other(agents, unreleased=5.9)
    assert first["told"]
    assert first["file estimates.asked"].count(b"\n") % (agents - 1) == 0
    assert nothing_differs(first, other)
