"""What `make release` checks is refused when it is wrong; the notes are the changelog's."""

from __future__ import annotations

import importlib.util
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]


def release() -> Any:
    spec = importlib.util.spec_from_file_location("release", ROOT / "requirements" / "release.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_notes_are_the_section_of_the_version() -> None:
    text = "# C\n\n## [Unreleased]\n\n- x\n\n## [1.0] - 2026\n\n- y\n\n## [0.9]\n- z\n"
    assert release().notes(text, "1.0") == "# Meanstream 1.0\n\n- y\n"
    with pytest.raises(Exception, match=r"must have a section \[2\.0\]"):
        release().notes(text, "2.0")
    found = release()
    assert found.notes((ROOT / "CHANGELOG.md").read_text(), str(found.project()["version"]))


def test_a_wheel_with_a_second_name_or_without_modules_is_refused(tmp_path: Path) -> None:
    found = release()
    said = "Metadata-Version: 2.4\nName: meanstream\nVersion: 1.0\n"
    for names, rule in ((["other/a.py"], "own one name"), (["meanstream/a.py"], "licence")):
        place = tmp_path / "meanstream-1.0-py3-none-any.whl"
        with zipfile.ZipFile(place, "w") as archive:
            archive.writestr("meanstream-1.0.dist-info/METADATA", said)
            for name in names:
                archive.writestr(name, "")
        with pytest.raises(Exception, match=rule):
            found.check_wheel(place, "1.0")


def test_a_source_with_state_is_refused(tmp_path: Path) -> None:
    (tmp_path / "state.db").write_text("")
    place = tmp_path / "meanstream-1.0.tar.gz"
    for inside, rule in (
        ("meanstream-1.0/meanstream/state.db", "no state"),
        ("meanstream-1.0/tests/a.py", "nothing else"),
    ):
        with tarfile.open(place, "w:gz") as archive:
            archive.add(tmp_path / "state.db", inside)
        with pytest.raises(Exception, match=rule):
            release().check_source(place, "1.0")
