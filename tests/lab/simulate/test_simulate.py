"""`meanstream simulate agents`: its JSON, its table, its trace, and its refusals."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from meanstream.pipelines.commands import main

FIELDS = (
    "checkpoints mse stderr local ideal oracle coverage type1 type2 agent_steps_per_second config"
)
SMALL = "--agents 12 --steps 60 --runs 3 --checkpoints 10,60"


def run(
    arguments: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> tuple[int, str, str]:
    monkeypatch.setattr("sys.argv", ["meanstream", "simulate", "agents", *arguments.split()])
    with pytest.raises(SystemExit) as ended:
        main.main()
    captured = capsys.readouterr()
    return int(ended.value.code or 0), captured.out, captured.err


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch):
    return lambda arguments: run(arguments, capsys, monkeypatch)


@pytest.mark.parametrize("mode", ["paper", "tuned"])
def test_json_has_the_promised_fields(command, mode: str) -> None:
    code, out, _ = command(f"{SMALL} --mode {mode} --json")
    result = json.loads(out)
    assert code == 0
    assert " ".join(result) == FIELDS
    assert result["checkpoints"] == [10, 60]
    for name in ("mse", "stderr", "local", "ideal", "oracle"):
        assert len(result[name]) == 2
        assert min(result[name]) > 0
    assert result["config"]["mode"] == mode
    assert result["config"]["schedule"] == ("round_robin" if mode == "paper" else "broadcast")


def test_the_issue_s_command_and_its_config_file_agree(command, tmp_path: Path) -> None:
    flags = {
        "agents": 12,
        "steps": 60,
        "means": "classes:0.2,0.4,0.8",
        "data": "uniform",
        "stddev": 0.5,
        "epsilon": 1,
        "delta": 1e-6,
        "counter": "pm1",
        "weights": "last",
        "schedule": "round_robin",
        "collaboration": "tests",
        "test": "lazy",
        "variance": "known",
        "noise": "gaussian",
        "runs": 3,
        "seed": 1,
        "mode": "paper",
    }
    _, from_flags, _ = command(
        " ".join(f"--{name} {value}" for name, value in flags.items()) + " --json"
    )
    config = tmp_path / "simulation.yaml"
    config.write_text("".join(f"{name}: {value}\n" for name, value in flags.items()))
    _, from_file, _ = command(f"--config {config} --json")
    first, second = json.loads(from_flags), json.loads(from_file)
    assert first.pop("agent_steps_per_second") > 0
    assert second.pop("agent_steps_per_second") > 0
    assert first == second


def test_the_table_has_a_line_per_checkpoint_and_says_the_mode(command) -> None:
    code, out, _ = command(f"{SMALL} --mode paper --spread 0.1")
    assert code == 0
    lines = out.splitlines()
    assert lines[0].split()[:3] == ["step", "mse", "stderr"]
    assert [line.split()[0] for line in lines[1:3]] == ["10", "60"]
    assert lines[1].split()[5] == "-"  # no oracle: with a spread there are no exact classes
    assert "mode paper (pm1, last, round_robin, tests, classical)" in out


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        ("--epsilon 0", "epsilon must be positive and finite, got 0"),
        ("--delta 1", "delta must lie strictly between 0 and 1, got 1"),
        ("--mode paper --epsilon 2", "epsilon must be at most 1 with calibration classical, got 2"),
        ("--checkpoints 1,x", "checkpoints must be integers separated by commas, got '1,x'"),
        ("--noise-variance 2", "noise_variance must be left out without --trace, got 2"),
        ("--trace nowhere.npz", "trace must be a readable .npz file of numbers, got 'nowhere.npz'"),
        ("--agents 1", "agents must be at least 2, got 1"),
    ],
)
def test_bad_options_are_one_line_and_exit_code_2(command, arguments: str, line: str) -> None:
    code, out, err = command(arguments)
    assert (code, out, err) == (2, "", f"meanstream: {line}\n")


def arrays(path: Path, steps: int = 30, agents: int = 4, **extra: np.ndarray) -> Path:
    generator = np.random.default_rng(1)
    data, noise = (
        generator.uniform(0, 1, (steps, agents)),
        generator.standard_normal((steps, agents)),
    )
    np.savez(path, **{"data": data, "noise": noise, "variance_noise": noise[::-1], **extra})
    return path


def test_trace_replays_given_arrays(command, tmp_path: Path) -> None:
    path = arrays(tmp_path / "given.npz")
    code, out, _ = command(
        f"--trace {path} --counter pm2 --weights windowed --noise-variance 0.5 --json"
    )
    result = json.loads(out)
    data = np.load(path)["data"]
    assert code == 0
    assert np.shape(result["estimates"]) == (30, 4)
    assert result["config"]["mode"] == "paper"
    assert all(a in members for a, members in enumerate(result["classes"]))
    assert (
        np.abs(np.array(result["estimates"][0]) - data[0]).max() > 1e-3
    )  # somebody else's mean came in
    _, released, _ = command(f"--trace {path} --variance released --noise-variance 0.5 --json")
    np.testing.assert_allclose(
        json.loads(released)["estimates"][0], data[0]
    )  # no variance yet at t = 1


@pytest.mark.parametrize(
    ("arguments", "extra", "line"),
    [
        ("--agents 5", {}, "agents must be 4 as in the trace, got 5"),
        ("--steps 31", {}, "steps must be 30 as in the trace, got 31"),
        (
            "",
            {"noise": np.zeros((3, 4))},
            "noise must have shape (steps, agents) = (30, 4), got (3, 4)",
        ),
        (
            "",
            {"data": np.zeros(3)},
            "trace must hold 'data' as numbers of shape (steps, agents), got shape (3,)",
        ),
        ("", {"data": np.full((30, 4), np.nan)}, "data must be finite, got 'NaN or infinity'"),
        ("--test oracle", {}, "class_sizes must be given for a trace with test oracle, got None"),
        ("--schedule broadcast", {}, "schedule must be pairwise for a trace, got 'broadcast'"),
        ("--noise-variance -1", {}, "noise_variance must be positive and finite, got -1"),
    ],
)
def test_traces_that_do_not_fit_are_refused(
    command, tmp_path: Path, arguments: str, extra: dict, line: str
) -> None:
    path = arrays(tmp_path / "given.npz", **extra)
    code, out, err = command(f"--trace {path} {arguments}")
    assert (code, out, err) == (2, "", f"meanstream: {line}\n")


def test_a_trace_without_noise_or_with_pickles_is_refused(command, tmp_path: Path) -> None:
    np.savez(tmp_path / "half.npz", data=np.zeros((3, 2)))
    code, _, err = command(f"--trace {tmp_path / 'half.npz'}")
    assert code == 2
    assert "trace must hold the array 'noise'" in err
    objects = np.array([object()], dtype=object)
    np.savez(tmp_path / "objects.npz", data=objects, noise=objects)
    code, _, err = command(f"--trace {tmp_path / 'objects.npz'}")
    assert code == 2
    assert err.startswith("meanstream: trace must be a readable .npz file of numbers")


def test_help_is_a_description_with_examples(command) -> None:
    code, out, _ = command("--help")
    assert code == 0
    assert "meanstream simulate agents --trace arrays.npz" in out
