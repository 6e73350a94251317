"""Each recipe of CONTRIBUTING.md is done in a copy of the tree, by its own steps; then the command
line takes it."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.lint.sources import CORE

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

    `lines` are put after a line of a file; `program` is what is written into a new file;
    `generates` are programs of the tree that write what follows from it. Then `command` must run,
    and `tests`, chosen by the word, must pass, as many as `least` or more.
    """

    lines: tuple[tuple[str, str, str], ...]
    place: str | None = None
    program: str = ""
    generates: tuple[tuple[str, ...], ...] = ()
    command: tuple[str, ...] = ()
    tests: tuple[str, ...] = ()
    word: str = ""
    least: int = 0


TRIED = {
    "Add an estimator of rounds": Tried(
        place="operators/estimators/added.py",
        program="from meanstream.operators.estimators.one_shot import OneShot\n\n\n"
        'class Added(OneShot):\n    """Added."""\n\n    name = "added"\n    candidate = False\n    taken_for = ""\n',
        lines=(
            (
                "operators/estimators/registry.py",
                "ESTIMATORS: dict[str, str] = {",
                '    "added": "meanstream.operators.estimators.added:Added",',
            ),
        ),
        command=(*ROUNDS, "--estimator", "added"),
        tests=("tests/lab/simulation/test_round_simulation.py",),
        word="[added",
        least=1,
    ),
    "Add a counter": Tried(
        place="operators/counters/added.py",
        program="from dataclasses import dataclass\nfrom typing import ClassVar\n\n"
        "from meanstream.operators.counters.pm1 import Pm1\n\n\n"
        '@dataclass(frozen=True)\nclass Added(Pm1):\n    """Added."""\n\n    name: ClassVar[str] = "added"\n',
        lines=(
            (
                "operators/counters/registry.py",
                "from meanstream.operators.counters.pm2 import Pm2",
                "from meanstream.operators.counters.added import Added",
            ),
            (
                "operators/counters/registry.py",
                "    Toeplitz.name: Toeplitz,",
                "    Added.name: Added,",
            ),
            (
                "docs/privacy.md",
                "| counter.pm1 |",
                "| counter.added | As of PM-I, which it is under another name | "
                "[added.py](../operators/counters/added.py) `Added` | `000000000000` |",
            ),
        ),
        generates=(("-m", "tests.contracts.test_proofs"),),
        command=(*AGENTS, "--counter", "added", "--spread-share", "0"),
        tests=(
            "tests/operators/counters/test_counters.py",
            "tests/operators/agents/test_statistic.py",
            "tests/contracts/test_proofs.py",
        ),
        word="[added or sketch",
        least=10,
    ),
    "Add a way to collaborate": Tried(
        place="operators/collaboration/added.py",
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
                "operators/collaboration/registry.py",
                "from meanstream.operators.collaboration.prior.release_bins import ReleaseBins",
                "from meanstream.operators.collaboration.added import Added",
            ),
            (
                "operators/collaboration/registry.py",
                "COLLABORATIONS: dict[str, Callable[[float, float, float], Collaboration]] = {",
                "    Added.name: lambda *_: Added(),",
            ),
        ),
        command=(*AGENTS, "--collaboration", "added"),
        tests=("tests/operators/collaboration/test_collaboration.py",),
        word="[added",
        least=1,
    ),
    "Add a feature to an engine": Tried(
        place="streaming/engine/added.py",
        program="from typing import Any\n\nfrom meanstream.streaming.engine.keepers import Keeper\n\n\n"
        'class Added(Keeper[Any]):\n    """Added."""\n',
        lines=(
            (
                "streaming/agents/agents_engine.py",
                "from meanstream.streaming.clock import Clock",
                "from meanstream.streaming.engine.added import Added",
            ),
            (
                "streaming/agents/agents_engine.py",
                "            EndKeeper(),",
                "            Added(),",
            ),
        ),
        command=(*AGENTS, "--added", "7"),
        tests=("tests/streaming/engine/test_keepers.py",),
        word="in_order",
        least=1,
    ),
    "Add a source": Tried(
        place="streaming/sources/added.py",
        program="from meanstream.streaming.sources.formats.csv_file import CsvSource\n\n\n"
        'class AddedSource(CsvSource):\n    """Added."""\n',
        lines=(
            (
                "streaming/open_source.py",
                "SOURCES: dict[str, str] = {",
                '    ".added": "meanstream.streaming.sources.added:AddedSource",',
            ),
        ),
        command=tuple("samples.added" if word == "samples.csv" else word for word in AGENTS),
    ),
    "Add a sink": Tried(
        place="streaming/sinks/added.py",
        program="from meanstream.streaming.sinks.jsonl_sink import JsonlSink\n\n\n"
        'class AddedSink(JsonlSink):\n    """Added."""\n\n    kind = "an .added file"\n',
        lines=(
            (
                "streaming/open_sink.py",
                "SINKS: dict[str, tuple[str, str]] = {",
                '    ".added": ("an .added file", "meanstream.streaming.sinks.added:AddedSink"),',
            ),
            (
                "tests/pipelines/commands/test_outputs.py",
                "BREAKS = {",
                '    ".added": Failing.jsonl,',
            ),
            ("tests/noninterference/surfaces.py", "SINK_KINDS = {", '    ".added": "agents",'),
        ),
        command=(*AGENTS, "--sink", "estimates.added"),
        tests=(
            "tests/pipelines/commands/test_outputs.py",
            "tests/noninterference/test_surfaces.py",
        ),
        word=".added or every_kind or (there_is_is_listed and kinds)",
        least=4,
    ),
    "Add an option": Tried(
        lines=(
            (
                "pipelines/options/agent_side.py",
                "    max_agents: MaxAgentsOption = ",
                '    added: Annotated[int, cli_option("Added.", INPUT, host="engine")] = 3',
            ),
            (
                "pipelines/options/agent_side.py",
                '        """Check everything that is not privacy; see `StreamOptions.engine_options`."""',
                "        if self.added < 0:\n"
                '            raise ValueError(f"added must be at least 0, got {self.added}")',
            ),
        ),
        command=(*AGENTS, "--added", "5"),
        tests=("tests/noninterference/test_surfaces.py",),
        word="there_is_is_listed and options",
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
    for place in re.findall(
        r"`((?:meanstream|operators|streaming|pipelines|tests|docs)/[\w/.]*)`", body
    ):
        assert (ROOT / place).exists(), place


REFUSED = {
    (
        "--added",
        "5",
        "--runner",
        "FnApiRunner",
        "--name",
        "x",
    ): "added must be left out with --runner, got '5'",
    ("--added", "-1"): "added must be at least 0, got -1",
}
"""What the option that is added is refused with, and how."""


def test_the_recipes_do_what_they_say(tmp_path: Path) -> None:
    """One copy of the tree for all of them: no recipe needs another, and starting interpreters is
    most of the cost."""
    tree = tmp_path / "tree"
    for name in ("meanstream", *CORE, "tests"):
        shutil.copytree(ROOT / name, tree / name, symlinks=True)  # with what is compiled
    (tree / "docs").mkdir()
    for name in ("pyproject.toml", "docs/privacy.md"):
        shutil.copy(ROOT / name, tree / name)
    for name in ("samples.csv", "samples.added"):
        (tree / name).write_text(SAMPLES)
    commands = [tried.command for tried in TRIED.values()]
    assert 0 not in {code for code, _ in ended(tree, commands)}  # not yet
    for tried in TRIED.values():
        follow(tree, tried)
    ran = ended(tree, [*commands, *((*AGENTS, *words) for words in REFUSED)])
    assert {code for code, _ in ran[: len(commands)]} == {0}
    assert ran[len(commands) :] == [(2, f"meanstream: {why}\n") for why in REFUSED.values()]
    passed = passed_in(tree, *(test for tried in TRIED.values() for test in tried.tests))
    for tried in TRIED.values():
        assert sum(passed.get(test, 0) for test in tried.tests) >= tried.least, (
            tried.tests,
            passed,
        )


def follow(tree: Path, tried: Tried) -> None:
    """Do in the copy what a recipe says."""
    if tried.place is not None:
        (tree / tried.place).write_text(
            f'"""Added."""\n\nfrom __future__ import annotations\n\n{tried.program}'
        )
    for place, after, line in tried.lines:
        text = (tree / place).read_text()
        start = re.search(rf"^{re.escape(after)}.*$", text, re.MULTILINE)
        assert start is not None, (place, after)
        (tree / place).write_text(f"{text[: start.end()]}\n{line}{text[start.end() :]}")
    for program in tried.generates:
        assert python(tree, *program).returncode == 0, program


FORKS = """
import json, os, sys
import meanstream.streaming.agents.agents_engine, meanstream.streaming.rounds.rounds_engine
from meanstream.pipelines.commands.main import main
for number, words in enumerate(json.load(sys.stdin)):
    child = os.fork()
    if not child:
        os.mkdir(f"ran{number}")
        errors = os.open(f"ran{number}/errors", os.O_CREAT | os.O_WRONLY)
        os.dup2(errors, 2)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        sys.argv = ["meanstream", *words, "--store", f"ran{number}/state.db"]
        main()
        os._exit(0)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


def ended(tree: Path, commands: Sequence[Sequence[str]]) -> list[tuple[int, str]]:
    """Run commands in the copy, each in a fork of one interpreter; give their codes and what they
    say on errors."""
    found = python(tree, "-c", FORKS, said=json.dumps(commands)).stdout.split()
    assert len(found) == len(commands)
    places = [tree / f"ran{number}" for number in range(len(found))]
    ran = [
        (int(code), (place / "errors").read_text())
        for code, place in zip(found, places, strict=True)
    ]
    for place in places:
        shutil.rmtree(place)
    (tree / "estimates.added").unlink(missing_ok=True)
    return ran


def passed_in(tree: Path, *files: str) -> Counter[str]:
    """Run what is about additions in the copy's tests; count what passes, by file."""
    words = " or ".join(f"({tried.word})" for tried in TRIED.values() if tried.word)
    # Hypothesis' examples of a counter, for which its own tests have time.
    words = f"({words}) and not any_horizon"
    ran = python(
        tree,
        "-m",
        "pytest",
        "-q",
        "-rA",
        "-p",
        "no:cacheprovider",
        *dict.fromkeys(files),
        "-k",
        words,
    )
    assert ran.returncode == 0, ran.stdout[-3000:]
    return Counter(re.findall(r"^PASSED ([\w/.]+)::", ran.stdout, re.MULTILINE))


def python(tree: Path, *arguments: str, said: str = "") -> subprocess.CompletedProcess[str]:
    environment = {"PYTHONPATH": str(tree), "PATH": "/usr/bin:/bin", "OPENBLAS_NUM_THREADS": "1"}
    command = [sys.executable, *arguments]
    return subprocess.run(
        command, cwd=tree, env=environment, input=said, capture_output=True, text=True, check=False
    )
