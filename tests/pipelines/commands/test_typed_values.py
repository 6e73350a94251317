"""A refused value is shown as it was typed, and is named itself."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.pipelines.command_line import SECRET, meanstream, run_agents, write_samples


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_samples(tmp_path / "flights.csv")
    return tmp_path


SPELLED = [
    (
        [
            "plan",
            "agents",
            "--agents=9",
            "--lower=0",
            "--upper=1",
            "--spread=.1",
            "--sizes=point:9",
            "--epsilon=-0",
        ],
        "epsilon must be positive and finite, got -0",
    ),
    (["simulate", "agents", "--runs", "-0"], "runs must be at least 1, got -0"),
    (
        [
            "plan",
            "agents",
            "--agents=9",
            "--lower=0",
            "--upper=-0",
            "--spread=.1",
            "--sizes=point:9",
            "--epsilon=1",
        ],
        "lower must be below upper (-0), got 0",
    ),
    (
        [
            "plan",
            "agents",
            "--agents=9",
            "--lower=0",
            "--upper=1e-9",
            "--spread=.1",
            "--sizes=point:9",
            "--epsilon=1",
        ],
        "spread must be at most half the width from lower (0) to upper (1e-9), got .1",
    ),
    (
        [
            "run",
            "rounds",
            "--lower=0",
            "--upper=1",
            "--user=a",
            "--window=1d",
            "--epsilon=1",
            "--user-budget=inf",
        ],
        "user_budget must be a finite number of times epsilon (1), got inf",
    ),
    (
        [
            "run",
            "rounds",
            "--lower=0",
            "--upper=1",
            "--user=a",
            "--window=1d",
            "--epsilon=1",
            "--between-users=9",
        ],
        "between_users must lie in [0, 0.5], half the range, got 9",
    ),
    (["simulate", "agents", "--runs", "00"], "runs must be at least 1, got 00"),
    (["simulate", "agents", "--epsilon", "1e999"], "got 1e999"),
    (
        ["ledger", "backup", "--to", "{folder}/kept/"],
        "backup must be a new file, got '{folder}/kept/', which exists",
    ),
    (
        ["report", "{folder}/r.html", "--store", ""],
        "store must be the name of a file or folder, got ''",
    ),
    (
        ["report", "{folder}/r.html", "--store", "."],
        "store must be a store, or the folder of a run with --shards, got '.'",
    ),
    (
        ["reproduce", "colme", "--out", "x/" * 3000],
        "out must be a path of at most 4095 bytes, got 'x/x/",
    ),
    (["schema", "-1"], "name must not begin with '-', got '-1'"),
    (["explain", "together", "-1h", "x.yaml"], "configs must not begin with '-', got '-1h'"),
    (["schema", "--nothing"], "No such option: --nothing"),
]


@pytest.mark.parametrize(("words", "said"), SPELLED, ids=range(len(SPELLED)))
def test_a_refused_value_is_shown_as_it_was_typed(
    folder: Path, words: list[str], said: str
) -> None:
    (folder / "kept").mkdir()
    if words[0] == "ledger":
        run_agents(folder, lower=-30)
        words = [*words, "--store", "{folder}/state.db"]
    ran = meanstream(
        *(word.format(folder=folder) for word in words), environment={"MEANSTREAM_SECRET": SECRET}
    )
    assert said.format(folder=folder) in ran.message


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"stddev": "1e308"}, r"stddev must be at most 1e\+150, got 1e308$"),
        ({"epsilon": "1e-5"}, "epsilon must be at least .*, got 1e-5$"),
        (
            {"spread_share": "0.999999999"},
            r"spread_share must be 0, or a part of epsilon \(1\) .*, got 0.999999999$",
        ),
        (
            {"spread_share": "1e-320"},
            r"spread_share must be 0, or a part of epsilon \(1\) .*, got 1e-320$",
        ),
        ({"lower": "-1e308"}, r"lower must be at most 1e\+150 below upper \(120\), got -1e308$"),
    ],
)
def test_a_value_that_others_are_made_of_is_shown_itself(
    folder: Path, given: dict[str, str], said: str
) -> None:
    ran = run_agents(folder, **given)
    assert re.match(said, ran.message), ran.message


LONG = "b" * 300


@pytest.mark.parametrize(
    ("words", "option"),
    [
        (("--source", f"follow:{LONG}.jsonl", "--refresh", "1s"), "source"),
        (("--source", f"{LONG}.csv"), "source"),
        (("--source", "synthetic:3,60", "--releases", f"{LONG}.jsonl"), "releases"),
        (("--source", "synthetic:3,60", "--sink", f"{LONG}.parquet"), "sink"),
        (("--source", "synthetic:3,60", "--dead-letters", f"{LONG}.jsonl"), "dead_letters"),
    ],
)
def test_a_place_that_cannot_even_be_looked_for_is_one_line(
    words: tuple[str, ...], option: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    rules = ("--lower", "0", "--upper", "1", "--epsilon", "1", "--delta", "1e-6", "--quiet")
    ran = meanstream("run", "agents", *words, *rules, environment={"MEANSTREAM_SECRET": SECRET})
    assert re.match(
        rf"{option} must be reachable, got '{LONG}\S+' \(File name too long\)", ran.message
    )
    assert not list(tmp_path.iterdir())
