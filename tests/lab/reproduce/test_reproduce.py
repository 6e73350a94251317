"""`meanstream reproduce colme`: numbers beside the reference, a picture, and refusals; at a
hundredth of the steps."""

from __future__ import annotations

import importlib.util
import json
import re
from pathlib import Path

import pytest

from meanstream.lab.reproduce import colme_figures, findings
from meanstream.pipelines.commands import main


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(colme_figures, "STEPS", 300)
    for name in ("REFERENCE_STEPS", "LADDER_STEPS"):
        monkeypatch.setattr(colme_figures, name, (100, 300))

    def run(arguments: str) -> tuple[int, str, str]:
        words = (
            arguments.split() if arguments.startswith("ladder") else ["colme", *arguments.split()]
        )
        monkeypatch.setattr("sys.argv", ["meanstream", "reproduce", *words])
        with pytest.raises(SystemExit) as ended:
            main.main()
        captured = capsys.readouterr()
        return int(ended.value.code or 0), captured.out, captured.err

    return run


@pytest.mark.parametrize("figure", ["2", "3", "4", "partners"])
def test_figures(command, tmp_path: Path, figure: str) -> None:
    code, out, _ = command(f"--figure {figure} --runs 2 --out {tmp_path} --json")
    result = json.loads(out)
    assert code == 0
    assert Path(result["png"]).read_bytes().startswith(b"\x89PNG")
    assert [panel["title"] for panel in result["panels"]] == [
        panel.title for panel in colme_figures.colme_paper().figures[figure].panels
    ]
    for panel in result["panels"]:
        for curve in panel["curves"]:
            assert curve["checkpoints"][-1] == 300
            assert len(curve["mse"]) == len(curve["checkpoints"])
            assert min(curve["mse"]) > 0
    assert any(curve["reference"] for curve in result["panels"][0]["curves"])


def test_text_shows_both_numbers(command, tmp_path: Path) -> None:
    code, out, err = command(f"--figure 4 --runs 2 --out {tmp_path}")
    assert code == 0
    assert "PM-II, Laplace" in out
    assert "4: Algorithm 1, M = 15: PM-I, Gaussian" in err
    lines = colme_figures.colme_lines(
        {
            "figure": 4,
            "runs": 1,
            "panels": [
                {
                    "title": "t",
                    "measure": "mse",
                    "curves": [
                        {
                            "label": "a",
                            "checkpoints": [100, 300],
                            "mse": [1.0, 2.0],
                            "reference": [{"step": 300, "mse": 7.3e-6}],
                        }
                    ],
                }
            ],
        }
    )
    assert "(reference 7.3e-06)" in "\n".join(lines)


def test_the_ladder_ends_with_the_default_and_each_step_is_relative_to_the_one_before(
    command, tmp_path: Path
) -> None:
    code, out, _ = command(f"ladder --runs 2 --out {tmp_path}")
    assert code == 0
    rows = [re.findall(r"[-+.e0-9]+", line.partition("  ")[2]) for line in out.splitlines()[2:8]]
    first, *steps, whole = [[float(cell) for cell in row] for row in rows]
    assert [len(row) for row in (first, *steps, whole)] == [2, 4, 4, 4, 4, 2]
    assert steps[-1][2] / first[1] == pytest.approx(whole[1], abs=0.01)
    assert (tmp_path / "ladder.png").is_file()


def test_notes_say_what_the_run_shows(command, tmp_path: Path) -> None:
    """Fixed texts said 2.4 times where a run had 2.7, and named a curve the worst."""
    result = json.loads(command(f"--figure 3 --runs 2 --out {tmp_path} --json")[1])
    curves = {curve["label"]: curve["mse"][-1] for curve in result["panels"][0]["curves"]}
    ratio = curves["Sch-Var-1 (released)"] / curves["variance known"]
    assert f"relative to variance known: Sch-Var-1 (released) {ratio:.2f} (" in result["note"]

    result = json.loads(command(f"--figure 2 --runs 2 --out {tmp_path} --json")[1])
    errors, members = (panel["curves"] for panel in result["panels"][:2])
    worst = max(errors, key=lambda curve: curve["mse"][-1])
    assert f"the largest error is that of {worst['label']}, " in result["note"]
    assert f"{members[-1]['label']} {members[-1]['type1'][-1]:.2f}." in result["note"]


def test_findings_follow_the_numbers() -> None:
    places = [1e6, 1e7]
    curve = {"label": "epsilon 4", "x": places, "y": [8e-8, 2e-8]}
    panel = {"title": "100 users", "axis": "samples", "curves": [curve]}
    assert findings.finding_of("kent 5", [panel]).endswith("samples the error falls by 4.0.")

    item = curve | {"y": [9e-8, 1e-8]}
    said = findings.finding_of("kent 3", [panel | {"curves": [curve, item]}])
    assert said == " Epsilon 4 is below the item level at samples 1,000,000."


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        ("--figure 5", "figure must be one of 2, 3, 4, partners, got '5'"),
        ("--runs 0", "runs must be at least 1, got 0"),
        (
            "--out /dev/null/x",
            "out must be a folder, or a new one, got '/dev/null/x' (Not a directory)",
        ),
    ],
)
def test_bad_options_are_one_line_and_exit_code_2(command, arguments: str, line: str) -> None:
    assert command(arguments) == (2, "", f"meanstream: {line}\n")


def test_without_matplotlib_one_line_names_the_extra(
    command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    code, out, err = command("--figure 2")
    assert (code, out) == (2, "")
    assert err == "meanstream: pictures need matplotlib: pip install 'meanstream[plot]'\n"
