"""Each recipe of CONTRIBUTING.md is done in a copy of the tree, by its own steps; then the command line takes it."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "CONTRIBUTING.md").read_text()
RECIPES = dict(re.findall(r"^## (Add [^\n]*)\n(.*?)(?=^## )", TEXT, re.MULTILINE | re.DOTALL))
SAMPLES = "agent,user,value,time\n" + "".join(
    f"a{i % 3},u{i},{i % 7},2024-01-01T{i // 60 % 24:02}:{i % 60:02}:00Z\n" for i in range(400)
)
BOUNDS = ("--source", "samples.csv", "--lower", "0", "--upper", "6", "--epsilon", "1", "--quiet")
AGENTS = ("run", "agents", *BOUNDS, "--delta", "1e-6")
ROUNDS = ("run", "rounds", *BOUNDS, "--window", "1d")


@dataclass(frozen=True, kw_only=True)
class Tried:
    """What somebody adds who follows a recipe.

    `lines` are put after a line of a file; `program` is what is written into a new file; `command` must then run, and
    `tests`, chosen by the word, must pass, as many as `least` or more.
    """

    lines: tuple[tuple[str, str, str], ...]
    place: str | None = None
    program: str = ""
    command: tuple[str, ...] = ()
    tests: tuple[str, ...] = ()
    word: str = ""
    least: int = 0


TRIED = {
    "Add an estimator of rounds": Tried(
        place="meanstream/operators/estimators/added.py",
        program="from meanstream.operators.estimators.one_shot import OneShot\n\n\n"
        'class Added(OneShot):\n    """Added."""\n\n    name = "added"\n    candidate = False\n    taken_for = ""\n',
        lines=(
            (
                "meanstream/operators/estimators/registry.py",
                "ESTIMATORS: dict[str, str] = {",
                '    "added": "meanstream.operators.estimators.added:Added",',
            ),
        ),
        command=(*ROUNDS, "--estimator", "added"),
        tests=("tests/operators/simulation/test_round_simulation.py",),
        word="added",
        least=1,
    ),
    "Add a counter": Tried(
        place="meanstream/operators/counters/added.py",
        program="from dataclasses import dataclass\nfrom typing import ClassVar\n\n"
        "from meanstream.operators.counters.pm1 import Pm1\n\n\n"
        '@dataclass(frozen=True)\nclass Added(Pm1):\n    """Added."""\n\n    name: ClassVar[str] = "added"\n',
        lines=(
            (
                "meanstream/operators/counters/registry.py",
                "from meanstream.operators.counters.pm2 import Pm2",
                "from meanstream.operators.counters.added import Added",
            ),
            ("meanstream/operators/counters/registry.py", "    Toeplitz.name: Toeplitz,", "    Added.name: Added,"),
        ),
        command=(*AGENTS, "--counter", "added", "--spread-share", "0"),
        tests=("tests/operators/counters/test_counters.py", "tests/operators/agents/test_statistic.py"),
        word="added",
        least=10,
    ),
    "Add a way to collaborate": Tried(
        place="meanstream/operators/collaboration/added.py",
        program="from dataclasses import dataclass\nfrom typing import Any, ClassVar\n\n"
        "from meanstream.operators.collaboration.alone import FittedAlone, LearningAlone\n\n\n"
        '@dataclass(frozen=True, slots=True)\nclass Added(LearningAlone):\n    """Added."""\n\n'
        '    name: ClassVar[str] = "added"\n\n'
        '    def fit(self, releases: Any, variance: Any) -> FittedAlone:\n        """Fit."""\n'
        '        return FittedAlone(method="added")\n\n'
        '    def fit_summary(self, summary: Any, sample_variance: Any) -> FittedAlone:\n        """Fit."""\n'
        '        return FittedAlone(method="added")\n',
        lines=(
            (
                "meanstream/operators/collaboration/registry.py",
                "from meanstream.operators.collaboration.release_bins import ReleaseBins",
                "from meanstream.operators.collaboration.added import Added",
            ),
            (
                "meanstream/operators/collaboration/registry.py",
                "COLLABORATIONS: dict[str, Callable[[float, float, float], Collaboration]] = {",
                "    Added.name: lambda *_: Added(),",
            ),
        ),
        command=(*AGENTS, "--collaboration", "added"),
        tests=("tests/operators/collaboration/test_collaboration.py",),
        word="added",
        least=1,
    ),
    "Add a source": Tried(
        place="meanstream/streaming/sources/added.py",
        program="from meanstream.streaming.sources.csv_file import CsvSource\n\n\n"
        'class AddedSource(CsvSource):\n    """Added."""\n',
        lines=(
            (
                "meanstream/streaming/open_source.py",
                "SOURCES: dict[str, str] = {",
                '    ".added": "meanstream.streaming.sources.added:AddedSource",',
            ),
        ),
        command=tuple("samples.added" if word == "samples.csv" else word for word in AGENTS),
    ),
    "Add a sink": Tried(
        place="meanstream/streaming/sinks/added.py",
        program="from meanstream.streaming.sinks.jsonl import JsonlSink\n\n\n"
        'class AddedSink(JsonlSink):\n    """Added."""\n\n    kind = "an .added file"\n',
        lines=(
            (
                "meanstream/streaming/open_sink.py",
                "SINKS: dict[str, tuple[str, str]] = {",
                '    ".added": ("an .added file", "meanstream.streaming.sinks.added:AddedSink"),',
            ),
            ("tests/pipelines/commands/test_outputs.py", "BREAKS = {", '    ".added": Failing.jsonl,'),
            ("tests/noninterference/surfaces.py", "SINK_KINDS = {", 'SINK_KINDS[".added"] = "agents"'),
        ),
        command=(*AGENTS, "--sink", "estimates.added"),
        tests=("tests/pipelines/commands/test_outputs.py", "tests/noninterference/test_surfaces.py"),
        word="added or every_kind or (listed and kinds)",
        least=4,
    ),
    "Add an option": Tried(
        lines=(
            (
                "meanstream/pipelines/options/agent_side.py",
                "    max_agents: MaxAgentsOption = ",
                '    added: Annotated[int, cli_option("Added.", INPUT)] = 3',
            ),
            (
                "meanstream/pipelines/options/agent_side.py",
                '        """Check everything that is not privacy; see `StreamOptions.engine_options`."""',
                "        if self.added < 0:\n"
                '            raise ValueError(f"added must be at least 0, got {self.added}")',
            ),
            ("meanstream/pipelines/commands/run/beam_agents.py", "ELSEWHERE = {", '    "added": 3,'),
            ("tests/noninterference/surfaces.py", "SETTINGS = {", '    "added",'),
        ),
        command=(*AGENTS, "--added", "5"),
        tests=("tests/noninterference/test_surfaces.py",),
        word="listed and options",
        least=1,
    ),
}


def test_every_recipe_is_tried_and_short() -> None:
    assert set(TRIED) == set(RECIPES)
    for body in RECIPES.values():
        numbers = [int(n) for n in re.findall(r"^(\d+)\. ", body, re.MULTILINE)]
        assert numbers == list(range(1, len(numbers) + 1))
        assert len(numbers) <= 5


@pytest.mark.parametrize("title", TRIED)
def test_what_is_added_is_where_the_recipe_says(title: str) -> None:
    tried, body = TRIED[title], RECIPES[title]
    files = {place for place, _, _ in tried.lines}
    assert all(place in body or f"`{Path(place).name}`" in body for place in files)
    if tried.place is not None:
        assert f"`{Path(tried.place).parent.as_posix()}/`" in body
    for place in re.findall(r"`((?:meanstream|tests|docs)/[\w/.]*)`", body):
        assert (ROOT / place).exists(), place


@pytest.mark.slow
@pytest.mark.parametrize("title", TRIED)
def test_a_recipe_does_what_it_says(title: str, tmp_path: Path) -> None:
    tried = TRIED[title]
    tree = tmp_path / "tree"
    for name in ("meanstream", "tests"):
        shutil.copytree(ROOT / name, tree / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tree)
    for name in ("samples.csv", "samples.added"):
        (tree / name).write_text(SAMPLES)
    if tried.command:
        assert meanstream(tree, *tried.command) != 0  # not yet
    if tried.place is not None:
        (tree / tried.place).write_text(f'"""Added."""\n\nfrom __future__ import annotations\n\n{tried.program}')
    for place, after, line in tried.lines:
        text = (tree / place).read_text()
        start = re.search(rf"^{re.escape(after)}.*$", text, re.MULTILINE)
        assert start is not None, (place, after)
        (tree / place).write_text(f"{text[: start.end()]}\n{line}{text[start.end() :]}")
    assert meanstream(tree, *tried.command) == 0
    if tried.tests:
        passed = python(tree, "-m", "pytest", "-q", "-p", "no:cacheprovider", *tried.tests, "-k", tried.word)
        found = re.search(r"(\d+) passed", passed.stdout)
        assert passed.returncode == 0, passed.stdout[-3000:]
        assert found is not None
        assert int(found[1]) >= tried.least


@pytest.mark.slow
def test_an_option_that_beam_does_not_have_is_refused(tmp_path: Path) -> None:
    test_a_recipe_does_what_it_says("Add an option", tmp_path)
    ran = python(tmp_path / "tree", *MAIN, *AGENTS, "--added", "5", "--runner", "FnApiRunner", "--name", "x")
    assert (ran.returncode, ran.stderr) == (2, "meanstream: added must be left out with --runner, got '5'\n")
    ran = python(tmp_path / "tree", *MAIN, *AGENTS, "--added", "-1")
    assert (ran.returncode, ran.stderr) == (2, "meanstream: added must be at least 0, got -1\n")


MAIN = ("-c", "import sys; from meanstream.pipelines.commands.main import main; main()")


def meanstream(tree: Path, *arguments: str) -> int:
    """Run the copy's command in the copy; what it makes is gone after it."""
    before = set(tree.iterdir())
    ran = python(tree, *MAIN, *arguments)
    for path in set(tree.iterdir()) - before:
        path.unlink()
    return ran.returncode


def python(tree: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {"PYTHONPATH": str(tree), "PATH": "/usr/bin:/bin", "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run(
        [sys.executable, *arguments], cwd=tree, env=environment, capture_output=True, text=True, check=False
    )
