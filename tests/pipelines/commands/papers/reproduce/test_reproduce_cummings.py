"""`meanstream reproduce cummings`: numbers beside reference ranges, a picture, refusals; with few users and runs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from meanstream.pipelines.commands import main
from meanstream.pipelines.commands.papers.reproduce import cummings_figures


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(cummings_figures, "USERS", 500)
    monkeypatch.setattr(cummings_figures, "EPSILONS", (1.0, 4.0))

    def run(arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr("sys.argv", ["meanstream", "reproduce", "cummings", *arguments.split()])
        with pytest.raises(SystemExit) as ended:
            main.main()
        captured = capsys.readouterr()
        return int(ended.value.code or 0), captured.out, captured.err

    return run


def test_every_curve_is_measured_and_drawn(command, tmp_path: Path) -> None:
    code, out, _ = command(f"--runs 3 --out {tmp_path} --json")
    result = json.loads(out)
    assert code == 0
    assert Path(result["png"]).read_bytes().startswith(b"\x89PNG")
    assert [panel["sizes"] for panel in result["panels"]] == ["zipf:1,100", "uniform:1,100"]
    for panel in result["panels"]:
        assert [curve["label"] for curve in panel["curves"]] == [curve.label for curve in cummings_figures.CURVES]
        base = panel["curves"][cummings_figures.BASE]
        for curve in panel["curves"]:
            assert len(curve["mse"]) == 2
            assert curve["ratio"] == [ours / one for ours, one in zip(curve["mse"], base["mse"], strict=True)]
    # The same configuration as `simulate rounds`: the number is measured, not written down.
    first = cummings_figures.cummings_figures_configuration(cummings_figures.CURVES[0], "zipf:1,100", 1.0, 3, 1)
    from meanstream.operators.papers.simulation.simulated_rounds import simulate_rounds

    assert result["panels"][0]["curves"][0]["mse"][0] == simulate_rounds(first).mse / 4.0


def test_text_shows_the_reference_beside_ours(command, tmp_path: Path) -> None:
    code, out, err = command(f"--runs 2 --out {tmp_path}")
    assert code == 0
    assert "public sizes (Alg. 2)" in out
    assert "(reference at epsilon 1: mse 2.4e-06 to 3e-06, ratio 1.2 to 1.8)" in out
    assert "sizes 1 to 100, Zipf: ideal" in err


def test_refusals_come_first(command, tmp_path: Path) -> None:
    assert command("--runs 0")[0] == 2
    code, _, err = command(f"--runs 2 --out {tmp_path}/missing")
    assert code == 2
    assert "out must be an existing directory" in err
