"""A third of each slow grid runs in the gate, another one for another commit, and nothing else is
left out."""

from __future__ import annotations

from typing import NamedTuple

from tests.seeded_grids import drawn_out


class _Test(NamedTuple):
    nodeid: str


SLOW_GRID = [_Test(f"a.py::test_slow[{i}]") for i in range(10)]
OTHERS = [_Test(f"a.py::test_fast[{i}]") for i in range(10)] + [
    _Test("a.py::test_alone"),
    _Test("a.py::test_pair[1]"),
]
DURATIONS = {test.nodeid: 1.0 for test in SLOW_GRID} | {
    "a.py::test_alone": 60.0,
    "a.py::test_pair[1]": 60.0,
}


def test_a_third_of_a_slow_grid_runs_and_all_else() -> None:
    out = drawn_out(SLOW_GRID + OTHERS, DURATIONS, "e40149a")
    assert len(out) == 7
    assert out < {test.nodeid for test in SLOW_GRID}
    assert out == drawn_out(SLOW_GRID + OTHERS, DURATIONS, "e40149a")


def test_commits_together_run_every_parameter() -> None:
    ran = {
        test.nodeid
        for seed in range(30)
        for test in SLOW_GRID
        if test.nodeid not in drawn_out(SLOW_GRID, DURATIONS, str(seed))
    }
    assert ran == {test.nodeid for test in SLOW_GRID}


def test_the_slow_figures_of_a_file_are_a_grid() -> None:
    slow = [_Test(f"tests/statistical/test_a.py::test_{i}") for i in range(5)]
    fast = _Test("tests/statistical/test_a.py::test_fast[1]")
    out = drawn_out([*slow, fast], {test.nodeid: 1.0 for test in slow}, "e40149a")
    assert len(out) == 4
    assert out < {test.nodeid for test in slow}
