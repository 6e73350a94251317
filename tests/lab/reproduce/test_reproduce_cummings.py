"""`meanstream reproduce cummings`: numbers beside reference ranges, a picture, refusals; with few
users and runs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from meanstream.lab.reproduce import cummings_figures
from meanstream.pipelines.commands import main


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
        assert [curve["label"] for curve in panel["curves"]] == [
            curve.label for curve in cummings_figures.compared_estimators()
        ]
        base = panel["curves"][cummings_figures.BASE]
        for curve in panel["curves"]:
            assert len(curve["mse"]) == 2
            assert curve["ratio"] == [
                ours / one for ours, one in zip(curve["mse"], base["mse"], strict=True)
            ]
    # The same configuration as `simulate rounds`: the number is measured, not written down.
    first = cummings_figures.cummings_configuration(
        cummings_figures.compared_estimators()[0], "zipf:1,100", 1.0, 3, 1
    )
    from meanstream.lab.simulation.simulated_rounds import simulate_rounds

    assert result["panels"][0]["curves"][0]["mse"][0] == simulate_rounds(first).mse / 4.0


def test_text_shows_the_reference_beside_ours(command, tmp_path: Path) -> None:
    code, out, err = command(f"--runs 2 --out {tmp_path}")
    assert code == 0
    assert "public sizes (Alg. 2)" in out
    assert "(reference at epsilon 1: mse 2.4e-06 to 3e-06, ratio 1.2 to 1.8)" in out
    assert "sizes 1 to 100, Zipf: ideal" in err


def test_refusals_come_first(command, tmp_path: Path) -> None:
    assert command("--runs 0")[0] == 2
    (tmp_path / "file").write_text("")
    code, _, err = command(f"--runs 2 --out {tmp_path}/file/missing")
    assert code == 2
    assert "out must be a folder, or a new one" in err


def test_appendix_c_has_the_paper_s_exponents(command, tmp_path: Path) -> None:
    """1/n for halving at the median, n^-3/2 for truncated weights, where noise does not
    dominate."""
    code, out, _ = command(f"--figure c --out {tmp_path}/new --json")
    assert code == 0
    slopes = {curve["label"]: curve["slope"] for curve in json.loads(out)["panels"][0]["curves"]}
    assert slopes["halving at the median, epsilon 4"] == pytest.approx(-1.0, abs=0.01)
    assert slopes["truncated weights, epsilon 4"] == pytest.approx(-1.5, abs=0.03)
    assert (tmp_path / "new" / "cummings-appendix-c.png").exists()
