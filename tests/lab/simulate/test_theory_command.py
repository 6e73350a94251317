"""`meanstream theory agents`: Propositions 1 to 3 as JSON."""

from __future__ import annotations

import json

import pytest

from meanstream.pipelines.commands import main


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch):
    def run(arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr("sys.argv", ["meanstream", "theory", "agents", *arguments.split()])
        with pytest.raises(SystemExit) as ended:
            main.main()
        captured = capsys.readouterr()
        return int(ended.value.code or 0), captured.out, captured.err

    return run


def test_the_paper_s_reference_curve(command) -> None:
    code, out, _ = command("--mode paper --checkpoints 1000,2000,5000,10000,30000 --json")
    table = json.loads(out)
    assert code == 0
    assert [f"{x:.2e}" for x in table["oracle"]] == [
        "1.16e-05",
        "5.33e-06",
        "2.03e-06",
        "1.00e-06",
        "3.30e-07",
    ]
    assert table["local"][0] == pytest.approx(2.5e-4)
    assert table["ideal"][-1] == pytest.approx(1.25e-7, rel=1e-6)
    assert table["releases"] == [6, 11, 26, 51, 151]
    # releases at 1, 200, ..., 1 + 199 * 5: sigma^2/t + kappa s2/t^2
    assert table["statistic_variance"][0] == pytest.approx(
        0.25 / 996 + 6 * table["fresh_variance"] / 996**2
    )
    assert table["config"]["mode"] == "paper"


@pytest.mark.parametrize(
    "schedule",
    ["round_robin", "restricted_round_robin", "broadcast", "broadcast:geometric:100,1.5"],
)
def test_every_schedule_and_weighting(command, schedule: str) -> None:
    last = json.loads(
        command(f"--agents 30 --steps 500 --schedule {schedule} --checkpoints 400,500")[1]
    )
    assert last["oracle"][1] < last["oracle"][0] < last["local"][0]
    assert all(a < b for a, b in zip(last["ideal"], last["oracle"], strict=True))


def test_weights_and_levels_change_the_variance_of_the_statistic(command) -> None:
    base = "--mode paper --counter pm2 --agents 30 --steps 2000 --checkpoints 2000"
    variances = {
        extra: json.loads(command(f"{base} {extra}")[1])["statistic_variance"][0]
        for extra in (
            "--weights last",
            "--weights windowed",
            "--weights gls",
            "--weights last --levels 7",
        )
    }
    assert (
        variances["--weights gls"] < variances["--weights windowed"] < variances["--weights last"]
    )
    assert variances["--weights last --levels 7"] < variances["--weights last"]


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (
            "--means normal:0,1",
            "means must be classes:LIST for theory (agents placed uniformly), got 'normal:0,1'",
        ),
        ("--epsilon -1", "epsilon must be positive and finite, got -1"),
        ("--mode paper --epsilon 3", "epsilon must be at most 1 with calibration classical, got 3"),
        (
            "--counter pm3",
            "counter must be one of pm1, pm2, toeplitz, optimal, got 'pm3'",
        ),
    ],
)
def test_bad_options_are_one_line_and_exit_code_2(command, arguments: str, line: str) -> None:
    assert command(arguments) == (2, "", f"meanstream: {line}\n")
