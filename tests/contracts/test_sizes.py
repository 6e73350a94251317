"""Code is read from the top down: functions, files and folders are short; one that is longer says why."""

from __future__ import annotations

import ast
import io
import tokenize
from collections import Counter
from pathlib import Path

PACKAGE = Path(__file__).parents[2] / "meanstream"
MOST_OF_A_FUNCTION = 40
"""Lines of code; docstrings, comments and empty lines are none."""
MOST_OF_A_FILE = 300
"""Lines of any kind."""
NO_CODE = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
}
MOST_OF_A_FOLDER = 28
"""Modules beside `__init__.py`."""
LONG_FUNCTIONS = {
    "frames/means.py private_means": "a list of parameters, and what is made of them",
    "operators/collaboration/count_trend.py TrendFit.of": "one integration in the order of its formula",
    "operators/estimators/kent/sparse_select.py SparseSelect.__init__": "a list of parameters",
    "operators/forecast/agents.py forecast_agents_table": "its parameters and the entries of its table are half of it",
    "operators/forecast/rounds.py forecast_rounds": "its parameters and the fields of its answer are half of it",
    "operators/agents/running_mean.py PrivateMean.__init__": "a list of parameters, and what is made of them",
    "operators/simulation/config.py SimulationConfig.from_options": "a list of options, passed on by name",
    "pipelines/agents.py CollaborateAgents.__init__": "a list of parameters",
    "pipelines/commands/demo/agents.py _run": "a list of options for one run",
    "pipelines/commands/demo/rounds.py demo_rounds": "a list of options of a command",
    "pipelines/rounds.py RunRounds.__init__": "a list of parameters",
    "streaming/agents/engine.py Engine.__init__": "a list of parameters",
    "streaming/rounds/engine.py RoundsEngine.__init__": "a list of parameters, and the parts made of them",
}
"""Longer functions, and why."""
LONG_FILES = {
    "operators/agents/agents.py": "one state as columns, and all that is read off it",
    "operators/agents/settings.py": "one record, its rules, and what is made of them, half of it what it means",
    "operators/agents/running_mean.py": "one statistic, a third of it the privacy that its users must read",
    "operators/audit/canaries.py": "agents as canaries, and the most powerful score of all that they release",
    "operators/audit/mechanisms.py": "the list of audits, and each of them",
    "operators/collaboration/release_bins.py": "one summary: what is added to it, taken out of it and read off it",
    "operators/estimators/plan/unknown_sizes.py": "the three stages of one plan, each of which reads the one before",
    "operators/simulation/transcription.py": "Algorithm 1 from its first line to its last, to lie beside the paper",
    "pipelines/beam/agents/coders.py": "a coder for each type that moves between the steps of agents",
    "pipelines/beam/agents/pairwise.py": "one transform and its one step with state",
    "pipelines/beam/agents/shard.py": "what a shard takes in and what it keeps, which are one state",
    "pipelines/commands/explain/command.py": "the facts of agents, and the same as text",
    "pipelines/commands/explain/rounds.py": "the facts of rounds, and the same as text",
    "pipelines/rounds.py": "the transforms of rounds, a third of it their parameters",
    "streaming/agents/engine.py": "one turn in its order, a third of it what its parameters and its privacy are",
    "streaming/kafka/client.py": "all that is asked of a library which no other file may import",
    "streaming/kafka/schemas/registry.py": "one client, and all that it refuses to believe",
    "streaming/kafka/transaction.py": "one delivery from its first record to the death of either side",
    "streaming/store/store.py": "each way to open a store, and what is compared on the way",
    "streaming/metrics/metrics.py": "one collector, and every figure that an engine of agents shows",
    "streaming/kafka/reader.py": "one consumer and all that it may say: the parts share its state",
    "streaming/rounds/settings.py": "one record, its rules, and the name and the key that are made of all of it",
}
"""Longer files, and why."""


def lines_of_functions(source: str) -> dict[str, int]:
    """Count the lines of code of each function, by its name within the file."""
    tree = ast.parse(source)
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    code = {line for one in tokens if one.type not in NO_CODE for line in range(one.start[0], one.end[0] + 1)}
    found: dict[str, int] = {}

    def count(node: ast.AST, outer: str) -> None:
        for child in ast.iter_child_nodes(node):
            name = outer
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                name = f"{outer}{child.name}."
                text = child.body[0] if ast.get_docstring(child) is not None else None
                code.difference_update(range(text.lineno, (text.end_lineno or 0) + 1) if text else ())
            count(child, name)
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
                found[name[:-1]] = len(code & set(range(child.lineno, (child.end_lineno or child.lineno) + 1)))

    count(tree, "")
    return found


def beyond(sizes: dict[str, int], most: int, excused: dict[str, str]) -> tuple[dict[str, int], set[str]]:
    """Give what is too long without a reason, and the reasons that nothing needs."""
    long = {name: size for name, size in sizes.items() if size > most}
    return {name: size for name, size in long.items() if not excused.get(name)}, excused.keys() - long.keys()


def modules() -> dict[str, str]:
    """Read every module of the package, by its path in it."""
    return {path.relative_to(PACKAGE).as_posix(): path.read_text(encoding="utf-8") for path in PACKAGE.rglob("*.py")}


def test_functions_are_short_or_say_why() -> None:
    sizes = {
        f"{path} {name}": size for path, text in modules().items() for name, size in lines_of_functions(text).items()
    }
    assert len(sizes) > 1000
    assert beyond(sizes, MOST_OF_A_FUNCTION, LONG_FUNCTIONS) == ({}, set())


def test_files_are_short_or_say_why() -> None:
    sizes = {path: len(text.splitlines()) for path, text in modules().items()}
    assert beyond(sizes, MOST_OF_A_FILE, LONG_FILES) == ({}, set())


def test_folders_are_small() -> None:
    folders = Counter(Path(path).parent for path in modules() if not path.endswith("__init__.py"))
    assert {folder: size for folder, size in folders.items() if size > MOST_OF_A_FOLDER} == {}
    assert max(folders.values()) > MOST_OF_A_FOLDER / 2  # they are counted


def test_what_is_too_long_would_be_found() -> None:
    body = "\n".join(f"        x = {i}  # why\n\n        # more" for i in range(40))
    source = f'class A:\n    def f(self):\n        """One.\n\n        Two.\n        """\n{body}\n'
    assert lines_of_functions(source) == {"A.f": 41}  # with the line of its name
    assert beyond({"A.f": 41, "g": 40}, 40, {}) == ({"A.f": 41}, set())
    assert beyond({"A.f": 41, "g": 40}, 40, {"A.f": "a reason", "g": "no more"}) == ({}, {"g"})
    assert beyond({"A.f": 41}, 40, {"A.f": ""}) == ({"A.f": 41}, set())
