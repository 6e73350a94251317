"""The files around the package agree with it: version, citation, the gate that a hosted runner
would run."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import yaml

import meanstream

ROOT = Path(__file__).parents[2]


def test_one_version() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert citation["version"] == meanstream.__version__
    assert re.search(r"## \[(\d[\d.]*)\]", changelog)[1] == meanstream.__version__  # type: ignore[index]
    tagged = [
        *(ROOT / "docker").rglob("*ockerfile"),
        ROOT / "docker" / "compose.yaml",
        ROOT / "docs" / "deployment.md",
    ]
    images = {
        tag
        for file in tagged
        for tag in re.findall(r"meanstream-[\w-]+:(\d[\d.]*\d)", file.read_text(encoding="utf-8"))
    }
    assert images == {meanstream.__version__}
    assert {
        word["family-names"] for paper in citation["references"] for word in paper["authors"]
    } >= {"Yakimenka"}


def test_the_workflow_is_valid_and_runs_the_gate() -> None:
    path = ROOT / ".github" / "workflows" / "ci.yml"
    every = (str(path), str(ROOT / "docs" / "examples" / "privacy-check.yml"))
    command = (
        sys.executable,
        "-m",
        "check_jsonschema",
        "--builtin-schema",
        "vendor.github-workflows",
        *every,
    )
    assert subprocess.run(command, capture_output=True, check=False).returncode == 0
    steps = yaml.safe_load(path.read_text(encoding="utf-8"))["jobs"]["gate"]["steps"]
    assert steps[-1] == {"run": ".ci/run"}


def test_the_oldest_lock_has_what_is_asked_for_at_least() -> None:
    """`make check-oldest` tries the lower bounds that are promised, of every dependency and
    extra."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    lock = (ROOT / "requirements" / "oldest.lock").read_text()
    locked = {
        name.lower(): version for name, version in re.findall(r"(?m)^([\w.-]+)==([^\s;]+)", lock)
    }
    asked = [*project["dependencies"], *project["optional-dependencies"]["dev"]]
    for text in asked:
        name, least = re.match(r"([\w.-]+)(?:\[\w+\])?>=([\d.]+)", text).groups()  # type: ignore[union-attr]
        found = locked[name.lower().replace("_", "-")]
        assert [int(n) for n in found.split(".")[: least.count(".") + 1]] == [
            int(n) for n in least.split(".")
        ], text
