"""The parts of `make release` that are not another tool's.

A README that can be read anywhere, checks, notes.

python requirements/check_release.py prepare TREE [URL]  in an exported tree: links of the README lead to URL
python requirements/check_release.py check TREE DIST       what was built of it; writes notes and digests beside it
"""

from __future__ import annotations

import hashlib
import json
import re
import sys
import tarfile
import tomllib
import zipfile
from email.parser import Parser
from pathlib import Path
from typing import Any

CORE = ("operators", "streaming", "pipelines")
"""Folders at the top of the tree; the package holds a link to each."""
HOUSE = {
    "hatch_build.py",
    "README.md",
    "LICENSE",
    "CHANGELOG.md",
    "pyproject.toml",
    ".gitignore",
    "PKG-INFO",
}
"""What a source distribution has beside the package; only the last is not a file of the commit."""
COMPILED = "meanstream/streaming/sources/compiled_records.abi3.so"
"""What is built where there is a compiler."""
NEVER = re.compile(
    r"(^|/)(tests?|benchmarks|\.venv|out|build|__pycache__)/|\.(db|pyc|key|pem|jsonl|csv|env)$|(?<!/providers)\.ya?ml$"
)
LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\((?!https?://|mailto:|#)([^)\s]+)\)")
"""Of Markdown: a picture or not, its words, a path within the repository."""
PICTURE, SOURCE = (
    re.compile(r"<picture>.*?</picture>\n*", re.DOTALL),
    re.compile(r'\b(src|srcset)="(?!https?://)([^"]+)"'),
)
"""Of HTML: a picture that is light or dark, and the path of one of them."""


class NotReadyError(Exception):
    """Something of a release is not as it must be."""


def need(true: object, rule: str) -> None:
    """Refuse a release that breaks a rule."""
    if not true:
        raise NotReadyError(rule)


def project(tree: Path) -> dict[str, Any]:
    """Read what `pyproject.toml` says of the project."""
    found: dict[str, Any] = tomllib.loads((tree / "pyproject.toml").read_text(encoding="utf-8"))[
        "project"
    ]
    return found


def resolved(readme: str, version: str, url: str) -> str:
    """Lead the README's links to the version's files under a URL.

    Without one, leave words, and no pictures.
    """

    def of(found: re.Match[str]) -> str:
        picture, words, path = found.groups()
        if not url:
            return "" if picture else words
        return f"{picture}[{words}]({url.rstrip('/')}/{'raw' if picture else 'blob'}/v{version}/{path})"

    where = f"{url.rstrip('/')}/raw/v{version}"
    readme = SOURCE.sub(rf'\1="{where}/\2"', readme) if url else PICTURE.sub("", readme)
    parts = re.split(r"(?ms)(^```.*?^```$)", readme)
    return "".join(part if part.startswith("```") else LINK.sub(of, part) for part in parts)


def check_wheel(wheel: Path, tree: Path) -> None:
    """Check that a wheel has the commit's files and no other, and what its metadata say."""
    about = project(tree)
    info = f"meanstream-{about['version']}.dist-info"
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        said = Parser().parsestr(archive.read(f"{info}/METADATA").decode())
    need(
        {name.partition("/")[0] for name in names} == {"meanstream", info},
        "the wheel must own one name",
    )
    need(f"{info}/licenses/LICENSE" in names, "the wheel must have the licence")
    files = {name for name in names if name.startswith("meanstream/")} - {COMPILED}
    same_files(files, package(tree), "wheel")
    need(said["Version"] == about["version"], f"the metadata must say {about['version']}")
    need(said["License-Expression"] == about["license"], "the metadata must name the licence")
    need(said["Description-Content-Type"] == "text/markdown", "the README must be the description")
    broken = [
        found[3]
        for found in LINK.finditer(re.sub(r"(?ms)^```.*?^```$", "", str(said.get_payload())))
    ]
    need(not broken, f"links of the description must lead somewhere, not to {broken[:3]}")


def check_source(source: Path, tree: Path) -> None:
    """Check that a source distribution has the commit's files and no other."""
    with tarfile.open(source) as archive:
        files = [one.name for one in archive.getmembers() if not one.isdir()]
    top = f"meanstream-{project(tree)['version']}/"
    need(all(name.startswith(top) for name in files), f"the source must be below {top}")
    same_files({name.removeprefix(top) for name in files}, package(tree) | HOUSE, "source")


def same_files(found: set[str], wanted: set[str], what: str) -> None:
    """Refuse files that are missing, too many, or of a kind that is never published."""
    need(
        wanted <= found,
        f"the {what} must have every file of the package, not lack {sorted(wanted - found)[:3]}",
    )
    need(found <= wanted, f"the {what} must have nothing else, got {sorted(found - wanted)[:3]}")
    wrong = sorted(name for name in found if NEVER.search(name))
    need(not wrong, f"the {what} must have no state, key, data or test, got {wrong[:3]}")


def package(tree: Path) -> set[str]:
    """List the files of the package in an exported tree."""
    folders = [tree / "meanstream", *(tree / name for name in CORE)]
    files = [
        path.relative_to(tree) for folder in folders for path in folder.rglob("*") if path.is_file()
    ]
    return {
        (path if path.parts[0] == "meanstream" else "meanstream" / path).as_posix()
        for path in files
    }


def check_bill(bill: Path, tree: Path) -> None:
    """Check that the bill of materials is of this version, and has every package that is locked, with its hashes."""
    found = json.loads(bill.read_text(encoding="utf-8"))
    about = found["metadata"]["component"]
    need(
        (about["name"], about.get("version")) == ("meanstream", project(tree)["version"]),
        "the SBOM must say what of",
    )
    lock = (tree / "requirements" / "engine.lock").read_text(encoding="utf-8")
    locked = {tuple(pair) for pair in re.findall(r"(?m)^([\w.-]+)==([^\s;]+)", lock)}
    listed = {(one["name"], one["version"]) for one in found["components"]}
    need(listed == locked, f"the SBOM must list what is locked, not {sorted(listed ^ locked)[:3]}")
    bare = [one["name"] for one in found["components"] if "hashes" not in json.dumps(one)]
    need(not bare, f"the SBOM must have hashes of every package, not lack those of {bare[:3]}")


def notes(changelog: str, version: str) -> str:
    """Take the section of a version from the changelog.

    With what waits in it, marked as a draft.
    """
    sections = dict(re.findall(r"(?ms)^## \[([^\]]+)\][^\n]*\n(.*?)(?=^## \[|\Z)", changelog))
    need(sections.get(version, "").strip(), f"CHANGELOG.md must have a section [{version}]")
    waiting = sections.get("Unreleased", "").strip()
    if not waiting:
        return f"# Meanstream {version}\n\n{sections[version].strip()}\n"
    return (
        f"# Meanstream {version}, and what came after it: a draft, not to be published under this number\n\n"
        f"{waiting}\n\n## {version}\n\n{sections[version].strip()}\n"
    )


def prepare(tree: Path, url: str) -> None:
    """Make the README of an exported tree one that can be read where the repository is not."""
    need(not url or url.startswith("https://"), f"URL must begin with https://, got {url!r}")
    readme = tree / "README.md"
    readme.write_text(
        resolved(readme.read_text(encoding="utf-8"), project(tree)["version"], url),
        encoding="utf-8",
    )


def check(tree: Path, folder: Path) -> None:
    """Check everything, and write notes and digests beside what was built."""
    version = str(project(tree)["version"])
    built = [f"meanstream-{version}-py3-none-any.whl", f"meanstream-{version}.tar.gz", "sbom.json"]
    there = sorted(path.name for path in folder.iterdir())
    need(set(built) <= set(there), f"{folder} must hold {', '.join(built)}, got {there}")
    check_wheel(folder / built[0], tree)
    check_source(folder / built[1], tree)
    check_bill(folder / built[2], tree)
    text = notes((tree / "CHANGELOG.md").read_text(encoding="utf-8"), version)
    (folder / "RELEASE_NOTES.md").write_text(text, encoding="utf-8")
    digests = [
        f"{hashlib.sha256((folder / name).read_bytes()).hexdigest()}  {name}" for name in built
    ]
    (folder / "SHA256SUMS").write_text("\n".join(digests) + "\n", encoding="utf-8")
    sys.stdout.write(
        "\n".join(
            [
                *digests,
                text.partition("\n")[0].removeprefix("# "),
                "checked; neither signed nor uploaded",
                "",
            ]
        )
    )


if __name__ == "__main__":
    try:
        match sys.argv[1:]:
            case ["prepare", tree, *url] if len(url) <= 1:
                prepare(Path(tree), "".join(url))
            case ["check", tree, folder]:
                check(Path(tree), Path(folder))
            case _:
                sys.exit(__doc__)
    except NotReadyError as refusal:
        sys.exit(f"release: {refusal}")
