"""The dashboards: made by the generator, as Grafana's own types want them, and complete for whoever
looks at them."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.servers.conftest import need
from tests.servers.support.broker import SERVERS

ROOT = Path(__file__).parents[2]
GRAFANA = ROOT / "docker" / "grafana"
TYPES = Path(__file__).parent / "grafana"
BOARDS = {
    path.stem: json.loads(path.read_text())
    for path in sorted((GRAFANA / "dashboards").glob("*.json"))
}
PACKAGES = json.loads((TYPES / "package.json").read_text())["dependencies"]
INSTALLED = SERVERS / f"grafana-{PACKAGES['@grafana/schema']}"
COMPILER = ["--noEmit", "--skipLibCheck", "--strict", "--module", "esnext", "--target", "es2022"]


def panels(board: dict[str, Any]) -> list[dict[str, Any]]:
    return [panel for panel in board["panels"] if panel["type"] != "row"]


PANELS = [
    pytest.param(panel, id=f"{name}-{panel['id']}")
    for name, board in BOARDS.items()
    for panel in panels(board)
]


def test_the_boards_are_those_that_an_operator_needs() -> None:
    assert set(BOARDS) == {"convergence", "rounds", "budget", "pipeline", "flink", "operator"}
    assert len({board["uid"] for board in BOARDS.values()}) == len(BOARDS)


def generate(folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(folder / "generate_dashboards.py"), "--check"]
    return subprocess.run(
        command, capture_output=True, text=True, check=False, env={**os.environ, "PYTHONPATH": ""}
    )


def test_committed_dashboards_are_what_the_generator_makes(tmp_path: Path) -> None:
    ran = generate(GRAFANA)
    assert ran.returncode == 0, ran.stderr
    shutil.copytree(GRAFANA, tmp_path / "grafana")
    path = tmp_path / "grafana" / "dashboards" / "budget.json"
    path.write_text(path.read_text().replace("Worst agent", "Best agent"))
    (tmp_path / "grafana" / "dashboards" / "forgotten.json").write_text("{}")
    ran = generate(tmp_path / "grafana")
    assert ran.returncode == 1
    assert "budget.json" in ran.stderr
    assert "forgotten.json" in ran.stderr


@pytest.mark.parametrize("panel", PANELS)
def test_a_panel_says_what_it_shows_in_which_unit_and_why_it_may_be_empty(
    panel: dict[str, Any],
) -> None:
    defaults = panel["fieldConfig"]["defaults"]
    assert defaults["unit"]
    assert 3 <= len(defaults["noValue"]) <= 30
    assert panel["description"].endswith(".")
    assert panel["title"]
    assert not panel["title"].endswith(".")
    assert [target["refId"] for target in panel["targets"]] == list(
        "ABCDEF"[: len(panel["targets"])]
    )
    legends = [target["legendFormat"] for target in panel["targets"]]
    assert len(set(legends)) == len(legends), "two lines of one name"
    for target in panel["targets"]:
        assert target["datasource"]["uid"] == "${datasource}"
        assert set(re.findall(r"\$\w+", target["expr"])) <= {"$instance", "$__rate_interval"}


@pytest.mark.parametrize("board", BOARDS.values(), ids=BOARDS)
def test_panels_do_not_overlap_and_fill_their_rows(board: dict[str, Any]) -> None:
    taken: dict[tuple[int, int], int] = {}
    for panel in board["panels"]:
        place = panel["gridPos"]
        for x in range(place["x"], place["x"] + place["w"]):
            for y in range(place["y"], place["y"] + place["h"]):
                assert x < 24
                assert (x, y) not in taken, f"{panel['title']} lies on panel {taken.get((x, y))}"
                taken[x, y] = panel["id"]
    assert len(taken) == 24 * (1 + max(y for _, y in taken)), "there is a hole"


@pytest.mark.parametrize("board", BOARDS.values(), ids=BOARDS)
def test_alerts_are_annotations(board: dict[str, Any]) -> None:
    (alerts,) = board["annotations"]["list"]
    assert alerts["enable"]
    assert alerts["target"]["expr"].startswith('ALERTS{alertstate="firing"')
    variables = {variable["name"] for variable in board["templating"]["list"]}
    assert variables == {"datasource", "instance"}


def test_what_is_provisioned_is_there() -> None:
    """The folders that Grafana is told are those that compose.yaml mounts; the source is the one
    that boards want."""
    compose = yaml.safe_load((ROOT / "docker" / "compose.yaml").read_text())["services"]
    mounts = dict(volume.split(":")[:2][::-1] for volume in compose["grafana"]["volumes"])
    provider = yaml.safe_load(
        (GRAFANA / "provisioning" / "dashboards" / "meanstream.yml").read_text()
    )
    (source,) = yaml.safe_load(
        (GRAFANA / "provisioning" / "datasources" / "prometheus.yml").read_text()
    )["datasources"]
    assert mounts[provider["providers"][0]["options"]["path"]] == "./grafana/dashboards"
    for folder in (GRAFANA / "provisioning").iterdir():
        assert (
            mounts[f"/etc/grafana/provisioning/{folder.name}"]
            == f"./grafana/provisioning/{folder.name}"
        )
    home = Path(compose["grafana"]["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"])
    assert mounts[str(home.parent)] == "./grafana/dashboards"
    assert home.stem in BOARDS
    assert source["url"] == "http://prometheus:9090"
    for board in BOARDS.values():
        (chosen,) = [v for v in board["templating"]["list"] if v["name"] == "datasource"]
        assert chosen["current"] == {"text": source["name"], "value": source["uid"]}


def missing_types() -> str | None:
    if shutil.which("node") is None:
        return "no node on the path"
    if not (INSTALLED / ".complete").is_file():
        return f"no types of Grafana in {INSTALLED}: run `make servers`"
    return None


def compiled(folder: Path, text: str) -> subprocess.CompletedProcess[str]:
    folder.mkdir()
    (folder / "node_modules").symlink_to(INSTALLED / "node_modules")
    shutil.copy(TYPES / "types.ts", folder)
    (folder / "boards.ts").write_text(f"import type {{ Board }} from './types';\n{text}")
    compiler = str(INSTALLED / "node_modules" / "typescript" / "bin" / "tsc")
    command = ["node", compiler, *COMPILER, "--moduleResolution", "bundler", "boards.ts"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


SPOILED = [
    ('"legendFormat"', '"legendFormt"'),
    ('"displayMode": "list"', '"displayMode": "lst"'),
    ('"noValue"', '"noVlaue"'),
    ('"lineWidth": 2', '"lineWidth": "2"'),
    ('"graphMode": "area"', '"graphMode": "aera"'),
    ('"type": "stat"', '"type": "stats"'),
    ('"refresh": "10s"', '"refresh": 5'),
    ('"includeAll"', '"includeAl"'),
    ('"schemaVersion"', '"schemVersion"'),
]


def test_dashboards_are_what_grafanas_types_allow_and_typing_errors_are_not(tmp_path: Path) -> None:
    need(missing_types())
    boards = "\n".join(
        f"export const {name}: Board = {json.dumps(board)};" for name, board in BOARDS.items()
    )
    ran = compiled(tmp_path / "good", boards)
    assert ran.returncode == 0, ran.stdout[:2000]
    wrong = []
    for number, (good, bad) in enumerate(SPOILED):
        assert good in boards
        name = f"wrong{number}"
        board = next(json.dumps(board) for board in BOARDS.values() if good in json.dumps(board))
        wrong.append(f"export const {name}: Board = {board.replace(good, bad, 1)};")
    ran = compiled(tmp_path / "bad", "\n".join(wrong))
    lines = {int(found) for found in re.findall(r"boards\.ts\((\d+),", ran.stdout)}
    assert lines == set(range(2, 2 + len(SPOILED))), "an error that the types do not see"


def test_the_types_are_of_the_grafana_that_is_shipped() -> None:
    compose = yaml.safe_load((ROOT / "docker" / "compose.yaml").read_text())["services"]
    version = PACKAGES["@grafana/schema"]
    assert compose["grafana"]["image"] == f"grafana/grafana:{version}"
    assert f"GRAFANA_VERSION := {version}" in (ROOT / "Makefile").read_text()
