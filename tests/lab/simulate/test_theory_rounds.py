"""`meanstream theory rounds`: the papers' bounds as numbers."""

from __future__ import annotations

import json
import math

import pytest

from meanstream.lab.simulate.theory_command import BoundsOptions
from meanstream.pipelines.commands import main


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch):
    def run(arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr("sys.argv", ["meanstream", "theory", "rounds", *arguments.split()])
        with pytest.raises(SystemExit) as ended:
            main.main()
        captured = capsys.readouterr()
        return int(ended.value.code or 0), captured.out, captured.err

    return run


def _found(command, arguments: str) -> dict[tuple[str, str], dict]:
    code, out, _ = command(f"{arguments} --json")
    assert code == 0
    return {(bound["statement"], bound["quantity"]): bound for bound in json.loads(out)["bounds"]}


def test_numbers_of_the_papers_by_hand(command) -> None:
    found = _found(command, "--users 500 --samples 100 --epsilon 1 --dimension 4 --sparsity 2")

    def value(*key: str) -> float:
        return found[key]["value"]

    assert value("Eq. 6", "lower bound, one mean") == pytest.approx(1 / (4 * 192 * 500 * 100))
    assert value("T*, Eq. 30", "samples used of each user") == pytest.approx(
        math.exp(500 / (8535 * 4))
    )
    assert value("Prop. 3 (ii)", "upper bound, T without end, l2 ball") == pytest.approx(
        9 * math.exp(-500 / 60) + 4 * math.exp(-500 / 60)
    )
    assert value("Theorem 6 (i)", "lower bound, l_inf ball") == pytest.approx(16 / 50_000)
    assert value("Theorem 9", "lower bound, density") == pytest.approx(50_000 ** (-2 / 4))
    assert value("Table 5", "phase transition, density") == pytest.approx(500.0**3)
    assert found["Table 5", "phase transition, density"]["constants"] == "rate only"
    assert value("Theorem 4.1", "upper bound, Algorithm 2") == pytest.approx(
        7680 * value("Eq. 6", "variance of the ideal estimator")
    )


def test_what_holds_depends_on_epsilon_and_sizes(command) -> None:
    within, beyond = (
        _found(command, f"--sizes two:1,100,0.5 --epsilon {epsilon}") for epsilon in ("0.6", "4")
    )
    theorem = ("Theorem 2", "upper bound, DAME")
    assert (within[theorem]["holds"], beyond[theorem]["holds"]) == (True, False)
    assert ("Corollary 3", "upper bound, sizes 1 and m") in within
    assert not any(key[0] == "Corollary 3" for key in _found(command, "--samples 100"))


def test_text_has_the_status_of_constants(command) -> None:
    code, out, err = command("--users 1000")
    assert (code, err) == (0, "")
    assert "rate only" in out
    assert "needs epsilon <= 22/35" in out


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        ("--users 3", "users must be at least 20 (bounds are for many users), got 3"),
        ("--sparsity 2", "sparsity must be at most 1 (dimension), got 2"),
        ("--epsilon 0", "epsilon must be positive and finite, got 0"),
    ],
)
def test_bad_options_are_one_line_and_exit_code_2(command, arguments: str, line: str) -> None:
    assert command(arguments) == (2, "", f"meanstream: {line}\n")


def test_windows_of_appendix_g_against_enumeration_and_each_other() -> None:
    options = BoundsOptions(users=200, samples=40, mean=0.3, between_users=0.05)
    bounds = {
        bound.quantity: bound.value
        for bound in options.bounds()
        if bound.statement in {"App. G", "App. C"}
    }
    failure = 0.1 / 400

    # Every count of 40 samples of 0 or 1, by its distance from the mean.
    chance = {count: math.comb(40, count) * 0.3**count * 0.7 ** (40 - count) for count in range(41)}
    distances = sorted({abs(count / 40 - 0.3) for count in range(41)})
    reached = [
        distance
        for distance in distances
        if sum(p for count, p in chance.items() if abs(count / 40 - 0.3) >= distance - 1e-12)
        > failure
    ]
    assert bounds["f_Bin at the median size"] == pytest.approx(max(reached), abs=1e-6)
    assert bounds["f_Bin at the median size"] < bounds["the same by Bernstein's inequality"]
    assert bounds["the same by Chernoff's bound"] == pytest.approx(
        math.sqrt(0.9 * math.log(2 / failure) / 40)
    )

    # Of 200 users none strays further, but with 2 failures in 20 halves: tails by hand.
    exponential = bounds["f_D, users' own means of an exponential law"] / 0.05
    normal = bounds["f_D, users' own means of a normal law"] / 0.05
    assert 200 * math.exp(-(exponential + 1)) == pytest.approx(0.05)
    assert 200 * math.erfc(normal / math.sqrt(2)) == pytest.approx(0.05)
