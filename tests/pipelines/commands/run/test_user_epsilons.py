"""`--user-epsilons`: users below the announced epsilon leave no trace, and a plan chooses it."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from tests.pipelines.command_line import SECRET, meanstream

USERS = 300
DAYS = 3
OF_A_TEST = {"MEANSTREAM_SECRET": SECRET}


def accepts(user: int) -> float:
    return 0.5 if user % 2 else 2.0


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    rows = [f"u{user},{accepts(user)}" for user in range(USERS)]
    (tmp_path / "limits.csv").write_text("\n".join(["user,epsilon", *rows]) + "\n")
    write_samples(tmp_path / "all.csv", 1, declining=True)
    return tmp_path


def write_samples(path: Path, seed: int, *, declining: bool) -> None:
    """Samples of those who accept are the same for any seed."""
    values = np.random.default_rng(7).uniform(0.0, 10.0, USERS)
    other = np.random.default_rng(seed)
    rows = []
    for day in range(DAYS):
        for user in range(USERS):
            if accepts(user) == 2.0:
                rows.append(f"u{user},{values[user]:.3f},{86_400 * day + 60}")
            elif declining:
                again = int(other.integers(0, 4))
                rows += [f"u{user},{other.uniform(0, 10):.3f},{86_400 * day + 50}"] * again

    rows += ["stranger,5,100"] * declining
    path.write_text("\n".join(["user,value,time", *rows]) + "\n")


def words(name: str, **more: object) -> list[str]:
    options = {
        "source": f"{name}.csv", "lower": 0, "upper": 10, "epsilon": 2, "window": "1d",
        "name": "limits", "store": f"{name}.db", "sink": f"{name}.jsonl",
        "reports": f"{name}_reports.jsonl", "private-figures": f"{name}.json",
        "user-epsilons": "limits.csv:epsilon", **more,
    }  # fmt: skip
    return [word for option, value in options.items() for word in (f"--{option}", str(value))]


def run(name: str, **more: object) -> tuple[bytes, bytes]:
    ran = meanstream("run", "rounds", *words(name, **more), environment=OF_A_TEST)
    assert ran.code == 0, ran.message
    return Path(f"{name}.jsonl").read_bytes(), Path(f"{name}_reports.jsonl").read_bytes()


def test_users_who_accept_less_leave_no_trace(folder: Path) -> None:
    public = run("all")
    write_samples(folder / "other.csv", 2, declining=True)
    write_samples(folder / "without.csv", 3, declining=False)
    assert run("other") == public
    assert run("without", **{"user-epsilons": "limits.csv:epsilon"}) == public
    answers = [json.loads(line) for line in public[0].splitlines()]
    assert [answer["users"] for answer in answers] == [USERS // 2] * DAYS

    # Each of their records has a reason that the users' side sees.
    lines = Counter(line.partition(",")[0] for line in Path("all.csv").read_text().splitlines())
    declined = sum(n for user, n in lines.items() if user == "stranger" or user[1:] in _ODD)
    assert json.loads(Path("all.json").read_bytes())["rejected"] == {"epsilon_declined": declined}


_ODD = {str(user) for user in range(1, USERS, 2)}


def test_a_run_without_the_table_does_not_go_on(folder: Path) -> None:
    assert folder
    run("all")
    Path("all.json").unlink()
    left = words("all")
    at = left.index("--user-epsilons")
    again = meanstream("run", "rounds", *left[:at], *left[at + 2 :], environment=OF_A_TEST)
    assert "user_epsilons must be 'epsilon' as in the store" in again.message
    said = meanstream("explain", "rounds", "--store", "all.db", "--json").json
    assert "the epsilon 'epsilon' that each user accepts" in said["public"]


@pytest.mark.parametrize(
    ("more", "rule"),
    [
        ({"user-epsilons": "value"}, "user_epsilons must be FILE.csv:COLUMN"),
        ({"user-epsilons": "limits.csv:epsilom"}, "did you mean 'epsilon'?"),
        ({"user-epsilons": "limits.csv:user"}, "user_epsilons must be a column of numbers"),
        ({"user-epsilons": "none.csv:epsilon"}, "user_epsilons must name a readable file"),
        ({"runner": "FnApiRunner"}, "user_epsilons must be left out with --runner"),
    ],
)
def test_what_is_no_table_of_epsilons_is_refused(
    more: dict[str, str], rule: str, folder: Path
) -> None:
    assert rule in meanstream("run", "rounds", *words("all", **more), environment=OF_A_TEST).message
    assert not (folder / "all.db").exists()


def test_a_plan_announces_the_epsilon_of_least_error(folder: Path) -> None:
    assert folder
    plan = ["plan", "rounds", "--sizes", "point:9", "--user-epsilons", "limits.csv:epsilon"]
    found = meanstream(*plan, "--json").json
    levels = {one["epsilon"]: one for one in found["thresholds"]}
    assert {epsilon: one["users"] for epsilon, one in levels.items()} == {0.5: 300, 2.0: 150}
    assert (found["epsilon"], found["users"]) == (2.0, 150)

    # Of 150 users at epsilon 2 the variance is 7.4 times smaller than of 300 at 0.5.
    assert levels[0.5]["half_width"] > 2.2 * levels[2.0]["half_width"]
    between = meanstream(*plan, "--epsilon", "1", "--json").json
    assert between["users"] == 150
    assert "have a user who accepts epsilon 9" in meanstream(*plan, "--epsilon", "9").message
    assert "users must be left out" in meanstream(*plan, "--users", "5").message
    family = meanstream(*plan, "--epsilon", "1", "--dimension", "3").message
    assert "dimension must be left out with --user-epsilons" in family
