"""The program that changes the code draws what it says: seeded, in strata, each change once; of the tests asked for."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.mutants.__main__ import CORE, drawn
from tests.mutants.changes import Change, changes_of
from tests.mutants.reach import ROOT, files_of_tests


def changes(*paths: str) -> list[Change]:
    return [change for path in paths for change in changes_of(ROOT, ROOT / "meanstream" / path)]


CORE_FILE, OTHER_FILE = "operators/noise/fixed_point.py", "operators/validation.py"


@pytest.mark.parametrize(("number", "core"), [(10, 5), (11, 6)])
def test_half_of_the_changes_are_of_the_core(number: int, core: int) -> None:
    found = drawn(changes(CORE_FILE, OTHER_FILE), number, seed=3)
    assert [change.path.endswith(CORE_FILE) for change in found] == [True] * core + [False] * (number - core)
    assert len({change.kind for change in found[:core]}) == core  # of each kind alike
    assert found == drawn(changes(CORE_FILE, OTHER_FILE), number, seed=3)
    assert found != drawn(changes(CORE_FILE, OTHER_FILE), number, seed=4)


@pytest.mark.parametrize("path", [CORE_FILE, OTHER_FILE])
def test_one_stratum_alone_gives_all_that_are_asked_for_and_each_once(path: str) -> None:
    all_changes = changes(path)
    assert len(drawn(all_changes, 7, seed=1)) == 7
    everything = drawn(all_changes, 10_000, seed=1)
    source = (ROOT / "meanstream" / path).read_text(encoding="utf-8")
    assert len(set(everything)) == len(everything) == sum(change.compiles(source) for change in all_changes)
    assert drawn([], 7, seed=1) == []


def test_the_core_is_there() -> None:
    """A file that moves must not leave its stratum unnoticed."""
    for name in CORE:
        folder, _, beginning = f"meanstream/{name}".rpartition("/")
        assert any(path.name.startswith(beginning) for path in (ROOT / folder).glob("*.py")), name


def test_only_the_tests_asked_for_are_measured() -> None:
    here = Path(__file__).relative_to(ROOT).as_posix()
    assert here in set(files_of_tests())
    assert list(files_of_tests((here, "meanstream/operators/noise/fixed"))) == [
        "meanstream/operators/noise/fixed_point.py",
        here,
    ]
