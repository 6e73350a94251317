"""The bill of materials names what is locked for the engine's image: every package, its version and
its hashes."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path

from tests.servers.conftest import need

ROOT = Path(__file__).parents[2]
LOCK = ROOT / "requirements" / "engine.lock"
SERVERS = Path(os.environ.get("MEANSTREAM_SERVERS", Path.home() / ".cache" / "meanstream-servers"))
TEXT = (ROOT / "Makefile").read_text()
VERSION = dict(re.findall(r"(?m)^(\w+) := (\S+)$", TEXT))["CYCLONEDX_VERSION"]


def test_it_names_every_locked_package(tmp_path: Path) -> None:
    tool = SERVERS / f"cyclonedx-{VERSION}" / "bin" / "cyclonedx-py"
    need(None if tool.exists() else "no cyclonedx-py: make servers")
    recipe = re.search(r"(?m)^\t\$\(CYCLONEDX\)/bin/cyclonedx-py (.*?)-o ", TEXT, re.DOTALL)
    assert recipe is not None
    out, words = tmp_path / "sbom.json", recipe[1].replace("\\\n", " ").split()
    ran = subprocess.run(
        [tool, *words, "-o", out, LOCK], capture_output=True, text=True, check=False, cwd=ROOT
    )
    assert ran.returncode == 0, ran.stderr
    bill = json.loads(out.read_text())
    assert (bill["bomFormat"], bill["metadata"]["component"]["name"]) == ("CycloneDX", "meanstream")
    locked = sorted(re.findall(r"(?m)^([a-z0-9][a-z0-9._-]*)==([^ ;\\]+)", LOCK.read_text()))
    assert sorted((one["name"], one["version"]) for one in bill["components"]) == locked
    assert all(one["externalReferences"][0]["hashes"] for one in bill["components"])
