"""What `make release` checks is refused when it is wrong; the README leads somewhere; the notes are
the changelog's."""

from __future__ import annotations

import importlib.util
import json
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
UV = Path(sys.executable).with_name("uv")
METADATA = """Metadata-Version: 2.4
Name: meanstream
Version: 1.0
License-Expression: Apache-2.0
Description-Content-Type: text/markdown

[elsewhere](https://example.org)
"""
INFO = "meanstream-1.0.dist-info"
GOOD = {
    f"{INFO}/METADATA": METADATA,
    f"{INFO}/licenses/LICENSE": "",
    "meanstream/a.py": "",
    "meanstream/py.typed": "",
}


def release() -> Any:
    spec = importlib.util.spec_from_file_location(
        "check_release", ROOT / "requirements" / "check_release.py"
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """The files of a small project, as they are exported."""
    tree = tmp_path / "tree"
    (tree / "meanstream").mkdir(parents=True)
    (tree / "requirements").mkdir()
    (tree / "pyproject.toml").write_text(
        '[project]\nname = "meanstream"\nversion = "1.0"\nlicense = "Apache-2.0"\n'
    )
    for name in ("a.py", "py.typed"):
        (tree / "meanstream" / name).touch()
    (tree / "requirements" / "engine.lock").write_text(
        "numpy==2.0 ; python_version > '3'\n    --hash=sha256:aa\n"
    )
    return tree


def wheel_of(folder: Path, files: dict[str, str]) -> Path:
    place = folder / "meanstream-1.0-py3-none-any.whl"
    with zipfile.ZipFile(place, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return place


def source_of(folder: Path, names: list[str]) -> Path:
    (folder / "empty").touch()
    place = folder / "meanstream-1.0.tar.gz"
    with tarfile.open(place, "w:gz") as archive:
        for name in names:
            archive.add(folder / "empty", name)
    return place


def test_notes_are_the_section_of_the_version() -> None:
    text = "# C\n\n## [Unreleased]\n\n## [1.0] - 2026\n\n- y\n\n## [0.9]\n- z\n"
    assert release().notes(text, "1.0") == "# Meanstream 1.0\n\n- y\n"
    waiting = release().notes(text.replace("eased]\n", "eased]\n- x\n"), "1.0")
    assert "a draft, not to be published" in waiting.partition("\n")[0]
    assert waiting.index("- x") < waiting.index("- y")
    assert "- z" not in waiting
    with pytest.raises(Exception, match=r"must have a section \[2\.0\]"):
        release().notes(text, "2.0")
    found = release()
    assert found.notes((ROOT / "CHANGELOG.md").read_text(), str(found.project(ROOT)["version"]))


def test_the_readme_leads_somewhere_where_the_repository_is_not() -> None:
    text = "![A, [b]](docs/a.png) [which](docs/b.md#c) [there](https://x.y/z) [here](#d)\n```\n[a](b)\n```\n"
    of = release().resolved
    assert of(text, "1.0", "") == " which [there](https://x.y/z) [here](#d)\n```\n[a](b)\n```\n"
    told = of(text, "1.0", "https://h.org/m/")
    assert "![A, [b]](https://h.org/m/raw/v1.0/docs/a.png)" in told
    assert "[which](https://h.org/m/blob/v1.0/docs/b.md#c)" in told
    ours = of((ROOT / "README.md").read_text(), "1.0", "")
    assert "docs/pictures" not in ours
    assert 'srcset="https://h.org/m/raw/v1.0/docs/pictures/page' in of(
        (ROOT / "README.md").read_text(), "1.0", "https://h.org/m/"
    )
    assert "](docs/" not in ours
    assert "| a data frame, groups within groups, over time |" in ours


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        ({}, None),
        ({"other/a.py": ""}, "own one name"),
        ({f"{INFO}/licenses/LICENSE": None}, "licence"),
        ({"meanstream/a.py": None}, "lack"),
        ({"meanstream/state.db": ""}, "nothing else"),
        ({f"{INFO}/METADATA": METADATA.replace("1.0", "1.1")}, "must say 1.0"),
        ({f"{INFO}/METADATA": METADATA.replace("Apache-2.0", "MIT")}, "name the licence"),
        ({f"{INFO}/METADATA": METADATA.replace("markdown", "plain")}, "be the description"),
        ({f"{INFO}/METADATA": METADATA + "[which](docs/b.md)"}, "not to .'docs/b.md'"),
    ],
)
def test_a_wheel_is_the_commits(
    change: dict[str, str | None], rule: str | None, tree: Path, tmp_path: Path
) -> None:
    files = {name: text for name, text in (GOOD | change).items() if text is not None}
    if rule is None:
        release().check_wheel(wheel_of(tmp_path, files), tree)
        return
    with pytest.raises(Exception, match=rule):
        release().check_wheel(wheel_of(tmp_path, files), tree)


def test_a_source_with_more_or_less_or_state_is_refused(tree: Path, tmp_path: Path) -> None:
    found = release()
    good = [
        f"meanstream-1.0/{name}"
        for name in (*found.HOUSE, "meanstream/a.py", "meanstream/py.typed")
    ]
    found.check_source(source_of(tmp_path, good), tree)
    for names, rule in (
        (good[1:], "lack"),
        ([*good, "meanstream-1.0/docker/README.md"], r"nothing else, got \['docker/README.md'\]"),
        ([*good, "elsewhere/a.py"], "be below"),
    ):
        with pytest.raises(Exception, match=rule):
            found.check_source(source_of(tmp_path, names), tree)
    (tree / "meanstream" / "state.db").touch()  # somebody committed it
    with pytest.raises(Exception, match="no state, key"):
        found.check_source(source_of(tmp_path, [*good, "meanstream-1.0/meanstream/state.db"]), tree)


def test_a_bill_of_materials_is_what_is_locked(tree: Path, tmp_path: Path) -> None:
    bill = tmp_path / "sbom.json"
    part = {
        "name": "numpy",
        "version": "2.0",
        "externalReferences": [{"hashes": [{"content": "aa"}]}],
    }

    def check(version: str, *parts: dict[str, Any]) -> None:
        about = {"name": "meanstream", "version": version}
        bill.write_text(json.dumps({"metadata": {"component": about}, "components": parts}))
        release().check_bill(bill, tree)

    check("1.0", part)
    for version, parts, rule in (
        ("0.9", [part], "say what of"),
        ("1.0", [], "list what is locked"),
        ("1.0", [{"name": "numpy", "version": "2.0"}], "hashes of every"),
    ):
        with pytest.raises(Exception, match=rule):
            check(version, *parts)


@pytest.mark.skipif(not UV.exists(), reason="uv is of the Makefile's environment")
def test_what_is_built_of_these_files_passes(tmp_path: Path) -> None:
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True
    ).stdout
    tree = tmp_path / "tree"
    for name in filter(None, listed.decode().split("\0")):
        place = tree / name
        if (ROOT / name).is_symlink() or (ROOT / name).is_file():
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / name, place, follow_symlinks=False)
    found = release()
    found.prepare(tree, "https://example.org/meanstream")
    subprocess.run([UV, "build", "-q", "-o", tmp_path / "dist", tree], check=True)
    found.check_wheel(next((tmp_path / "dist").glob("*.whl")), tree)
    found.check_source(next((tmp_path / "dist").glob("*.tar.gz")), tree)
    command = [
        sys.executable,
        "-m",
        "twine",
        "check",
        "--strict",
        *(tmp_path / "dist").glob("meanstream*"),
    ]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout
