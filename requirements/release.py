"""Checks what `make release` built, and writes its notes from CHANGELOG.md: `python requirements/release.py dist`."""

from __future__ import annotations

import hashlib
import re
import sys
import tarfile
import tomllib
import zipfile
from email.parser import Parser
from pathlib import Path

ROOT = Path(__file__).parents[1]
HOUSE = {"README.md", "LICENSE", "CHANGELOG.md", "pyproject.toml", "PKG-INFO", ".gitignore"}
"""What a source distribution has beside the package."""
NEVER = re.compile(r"(^|/)(tests?|benchmarks|\.venv|out|build|__pycache__)/|\.(db|pyc|key|pem|jsonl)$")


class NotReadyError(Exception):
    """Something of a release is not as it must be."""


def need(true: object, rule: str) -> None:
    """Refuse a release that breaks a rule."""
    if not true:
        raise NotReadyError(rule)


def project() -> dict[str, object]:
    """Read what `pyproject.toml` says of the project."""
    found: dict[str, object] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return found


def check_wheel(wheel: Path, version: str) -> None:
    """Check the files and the metadata of a wheel."""
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        said = Parser().parsestr(archive.read(f"meanstream-{version}.dist-info/METADATA").decode())
    info = f"meanstream-{version}.dist-info"
    need({name.partition("/")[0] for name in names} == {"meanstream", info}, "the wheel must own one name")
    need(f"{info}/licenses/LICENSE" in names, "the wheel must have the licence")
    ours = {f"meanstream/{path.relative_to(ROOT / 'meanstream').as_posix()}" for path in modules()}
    need(ours <= names, f"the wheel must have every module, not {sorted(ours - names)[:3]}")
    need(not [name for name in names if NEVER.search(name)], "the wheel must have no state, key or test")
    need(said["Version"] == version, f"the metadata must say {version}")
    need(said["Description-Content-Type"] == "text/markdown", "the README must be the description")
    need(said["License-Expression"] == project()["license"], "the metadata must name the licence")


def check_source(source: Path, version: str) -> None:
    """Check the files of a source distribution."""
    with tarfile.open(source) as archive:
        names = {name.removeprefix(f"meanstream-{version}/") for name in archive.getnames()}
    tops = {name.partition("/")[0] for name in names}
    need(tops <= HOUSE | {"meanstream"}, f"the source must have nothing else: {sorted(tops - HOUSE)}")
    need(not [name for name in names if NEVER.search(name)], "the source must have no state, key or test")


def modules() -> list[Path]:
    """List the modules of the package."""
    return [path for path in (ROOT / "meanstream").rglob("*.py") if "__pycache__" not in path.parts]


def notes(changelog: str, version: str) -> str:
    """Take the section of a version from the changelog."""
    sections = dict(re.findall(r"(?ms)^## \[([^\]]+)\][^\n]*\n(.*?)(?=^## \[|\Z)", changelog))
    need(sections.get(version, "").strip(), f"CHANGELOG.md must have a section [{version}]")
    waiting = sections.get("Unreleased", "").strip()
    if waiting:
        sys.stderr.write(f"release: CHANGELOG.md has unreleased entries that the notes of {version} leave out\n")
    return f"# Meanstream {version}\n\n{sections[version].strip()}\n"


def main(folder: Path) -> None:
    """Check everything, and write notes and digests beside what was built."""
    version = str(project()["version"])
    built = {path.name: path for path in folder.iterdir()}
    wheel, source = f"meanstream-{version}-py3-none-any.whl", f"meanstream-{version}.tar.gz"
    need({wheel, source, "sbom.json"} <= set(built), f"{folder} must hold {wheel}, {source} and sbom.json")
    check_wheel(built[wheel], version)
    check_source(built[source], version)
    text = notes((ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), version)
    (folder / "RELEASE_NOTES.md").write_text(text, encoding="utf-8")
    digests = [
        f"{hashlib.sha256(built[name].read_bytes()).hexdigest()}  {name}" for name in (wheel, source, "sbom.json")
    ]
    (folder / "SHA256SUMS").write_text("\n".join(digests) + "\n", encoding="utf-8")
    sys.stdout.write("\n".join([*digests, "checked; nothing was signed or uploaded", ""]))


if __name__ == "__main__":
    try:
        main(Path(sys.argv[1]))
    except NotReadyError as refusal:
        sys.exit(f"release: {refusal}")
