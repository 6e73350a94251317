"""The program that changes the code draws what it says: seeded, in strata, each change once; of the tests asked for."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path

import pytest

from tests.mutants import __main__ as program
from tests.mutants.__main__ import CORE, NEAR, NOT_REACHED, SO_FAR, UNNOTICED, Chosen, Seed, Trying, drawn
from tests.mutants.changes import Change, changes_of
from tests.mutants.near import near_tests
from tests.mutants.places import MARK, ROOT, Places
from tests.mutants.reach import Reach, files_of_tests


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


SOURCE = '''"""What it is."""
from __future__ import annotations
SIZE = 3
"""Not a docstring: of a name."""

def first(x):
    """Doc."""
    if x > 1:
        return "large"
    return "small"

class Some:
    def second(self, x):
        try:
            return 1 / x
        except ZeroDivisionError:
            return 0
'''


def test_a_marked_program_does_the_same_and_notes_where_it_was() -> None:
    found = Places("file.py", SOURCE)
    assert [found.of_line.get(line, "") for line in (4, 8, 9, 10, 14, 15, 17)] == [
        "", "file.py:first:0", "file.py:first:1", "file.py:first:2",
        "file.py:Some.second:0", "file.py:Some.second:1", "file.py:Some.second:2",
    ]  # fmt: skip
    numbers = {"gone.py:other:0": 0}
    for name in found.names:
        numbers.setdefault(name, len(numbers))
    reached = bytearray(len(numbers))
    marked = found.marked(numbers).replace(f"from meanstream._reached import {MARK}", "")
    names: dict = {MARK: reached}
    exec(marked, names)  # noqa: S102 - written above
    assert not any(reached)
    assert names["first"].__doc__ == "Doc."
    assert names["first"](5) == "large"
    assert names["Some"]().second(0) == 0
    places = {name for name, number in numbers.items() if reached[number]}
    assert places == {
        f"file.py:{place}" for place in ("first:0", "first:1", "Some.second:0", "Some.second:1", "Some.second:2")
    }


def test_tests_are_chosen_by_place_those_of_the_folder_first() -> None:
    path = "meanstream/operators/noise/fixed_point.py"
    places = Places(path, (ROOT / path).read_text(encoding="utf-8"))
    line = max(places.of_line)
    inside, other = places.of_line[line], next(n for n in places.names if n != places.of_line[line])
    rows = {
        "tests/far/test_a.py::quick": (0.1, [0]),
        "tests/operators/noise/test_b.py::slow": (5.0, [0]),
        "tests/operators/noise/test_b.py::fails": (0.1, [0]),
        "tests/far/test_a.py::elsewhere": (0.1, [1]),
    }
    reach = Reach({inside: 0, other: 1}, [{"tests": rows, "failed": ["tests/operators/noise/test_b.py::fails"]}])
    found = ["tests/operators/noise/test_b.py::slow", "tests/far/test_a.py::quick"]
    assert reach.tests_of(path, line) == found
    at_import = next(n for n in range(1, line) if n not in places.of_line)
    assert set(reach.tests_of(path, at_import)) == {*found, "tests/far/test_a.py::elsewhere"}
    assert reach.tests_of("meanstream/operators/noise/keyed.py", 1) == []


def test_what_was_tried_of_a_seed_is_kept_and_of_another_tree_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(program, "KEPT", tmp_path / "of a fresh tree" / "mutants")
    some = changes(CORE_FILE)
    Seed(some, 5, 1).note(3, "a test")
    assert Seed(some, 5, 1).verdicts == {3: "a test"}
    assert Seed(some, 5, 2).verdicts == Seed(some[1:], 5, 1).verdicts == {}


def test_without_a_map_the_nearest_tests_come_first_and_each_once() -> None:
    path = "meanstream/operators/noise/fixed_point.py"
    found = near_tests(path)
    assert found[:2] == [path, "tests/operators/noise/test_fixed_point.py"]  # its doctests; of its folder, by its name
    beside = [test.startswith("tests/operators/noise/") for test in found[2:]]
    assert beside[0]
    assert beside == sorted(beside, reverse=True)
    assert "tests/privacy/test_mechanisms.py" in found
    assert len(set(found)) == len(found)
    assert set(found) <= set(files_of_tests())


class Copy:
    """Stands for a copy of the tree: some changes are noticed, the first of them by a test that always fails."""

    tried: list[tuple[int, tuple[str, ...]]]
    noticed: dict[int, str]

    def __init__(self, folder: Path) -> None:
        assert folder.is_dir()

    def verdict(self, change: Change, chosen: Chosen) -> str:
        Copy.tried.append((change.start, tuple(chosen.tests)))
        return Copy.noticed.get(change.start, "") if "fails" in chosen.tests else ""

    def failing(self, chosen: Chosen) -> list[str]:
        return [f"FAILED {test}" for test in chosen.tests if test == "always"]


def test_what_the_first_tests_leave_is_tried_by_others_and_what_fails_anyway_is_no_notice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(program, "KEPT", tmp_path)
    monkeypatch.setattr(program, "Tree", Copy)
    seed = Seed(changes(CORE_FILE), 5, 1)
    first, second, third, none, late = (change.start for change in seed.drawn)
    Copy.tried, Copy.noticed = [], {first: "FAILED always", second: "FAILED a test", late: "ERROR another"}

    def few(change: Change) -> Chosen:
        return Chosen([] if change.start == none else ["passes"] if change.start == late else ["fails"], 1.0)

    trying = Trying(seed, 1, math.inf, tmp_path)
    trying.turn((None,), few, NOT_REACHED, SO_FAR)
    assert seed.verdicts == {0: "FAILED always", 1: "FAILED a test", 2: SO_FAR, 3: NOT_REACHED, 4: SO_FAR}
    trying.turn((SO_FAR,), lambda _: Chosen(["fails"], 1.0), "", "")
    assert [start for start, _ in Copy.tried] == [first, second, late, third, late, third]  # strata in turn
    trying.confirm()
    assert seed.verdicts == {0: NEAR, 1: "FAILED a test", 2: "", 3: NOT_REACHED, 4: "ERROR another"}
    assert Seed(changes(CORE_FILE), 5, 1).verdicts == seed.verdicts
    assert {i for i, by in seed.verdicts.items() if by not in UNNOTICED} == {1, 4}


def test_no_change_is_tried_when_time_is_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(program, "KEPT", tmp_path)
    monkeypatch.setattr(program, "Tree", Copy)
    Copy.tried, Copy.noticed = [], {}
    seed = Seed(changes(CORE_FILE), 3, 1)
    Trying(seed, 1, -math.inf, tmp_path).turn((None,), lambda _: Chosen(["fails"], 1.0), NOT_REACHED, SO_FAR)
    assert Copy.tried == []
    assert seed.verdicts == {}


@pytest.mark.slow
def test_forks_tell_what_fails_what_ends_never_and_what_time_was_left_for(tmp_path: Path) -> None:
    tests = {
        "good": "def test(): assert 1",
        "bad": "def test(): assert 0",
        "endless": "def test():\n    while True: pass",
        "late": "import os\ndef test_a(): os.environ['MUTANTS_SECONDS'] = '0'\ndef test_b(): assert 0",
    }
    asked = []
    for name, program_of in tests.items():
        limit = 3 if name == "endless" else 60  # seconds of processor time, of which a busy machine takes more
        (tmp_path / f"test_{name}.py").write_text(program_of)
        arguments = [
            "-q",
            "-p",
            "tests.mutants.stopping",
            "--noconftest",
            "-c",
            "/dev/null",
            str(tmp_path / f"test_{name}.py"),
        ]
        bounds = {"stop": 60.0, "limit": limit, "most": 200.0}
        asked.append({"arguments": arguments, "out": str(tmp_path / "out"), **bounds})
    ran = subprocess.run(
        [sys.executable, "-m", "tests.mutants.forking"],
        cwd=ROOT, input="\n".join(map(json.dumps, asked)), capture_output=True, text=True, check=True,
    )  # fmt: skip
    answers = [json.loads(line) for line in ran.stdout.splitlines()]
    assert [answer["code"] for answer in answers[:2]] == [0, 1]
    assert answers[2]["code"] < 0
    assert answers[3]["code"] == 5
    assert "1 passed" in answers[3]["text"]
