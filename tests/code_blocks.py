"""The code blocks of README.md and docs/: found, run page by page in an empty folder, compared with
what is shown.

What a page may say, in a comment of HTML right before a block, which no reader sees:

- nothing: Python runs in the page's namespace, a shell's lines run in the page's folder, one after the other; of a
  `console` block the lines after `$ ` run, and what stands below each is compared (`...` is
  anything);
- `<!-- output -->`: the block is what the one before it printed;
- `<!-- numbers vary -->`, `<!-- output, numbers vary -->`: each run has new noise, so its numbers and digests may
  differ: the page shows those of one run;
- `<!-- file: NAME -->`: the block is written to that file;
- `<!-- not run: REASON -->`: it is not run; lines of `meanstream` are still read by its parser.

A section that says that its commands begin in an empty folder has a folder, a namespace and an
environment of its own.

A page that runs against `broker:9092` gets a broker of its own.
"""

from __future__ import annotations

import contextlib
import doctest
import io
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import typer

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
SHELL, SHOWN = ("", "sh", "bash"), ("console",)
BROKER = "broker:9092"
"""What pages call their broker."""
SECONDS = 800
EMPTY_FOLDER = "*The commands of this section begin in an empty folder.*"
"""What a page says where its blocks begin anew."""
_FENCE = re.compile(r"(?P<indent> *)(?P<fence>```+)(?P<language>\{[\w-]+\}.*|[\w-]*)\s*")
_SAID = re.compile(
    r"^\s*<!-- (?P<what>output|file|not run)?(?P<vary>(?:, |\b)numbers vary)?(?:: (?P<value>.+?))? -->\s*$"
)
_NUMBER = re.compile(r"\b[0-9a-f]{32,}\b|-?\b\d(?:,?\d)*(?:\.\d+)?(?:e[+-]?\d+)?")
"""Numbers and digests, which vary with the noise."""
_TIMED = re.compile(r"\b\d[\d,.]* (?=d ago\b)|(?<=\bin )\d[\d.]*(?= s\b)")
"""Ages and durations, which vary with the day and the machine on every page."""
_OPTIONS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


@dataclass(frozen=True)
class Block:
    """A fenced block of a page, with what is said of it."""

    page: Path
    line: int
    language: str
    text: str
    what: str = ""
    value: str = ""
    vary: bool = False
    part: int = 0

    @property
    def name(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"

    @property
    def runs(self) -> bool:
        return self.what == "" and self.language in ("python", *SHELL, *SHOWN)

    @property
    def problem(self) -> str | None:
        """Why a block is neither run nor excused; None if it is."""
        if self.what == "not run":
            return (
                None if self.value and len(self.value.split()) >= 3 else "its reason must be said"
            )
        if self.what == "file":
            return None if self.value else "the file must be named"
        known = self.runs or self.what == "output"
        return (
            None
            if known
            else f"a block of {self.language!r} must be output, a file or not run, with the reason"
        )


def blocks_of(page: Path, text: str | None = None) -> list[Block]:
    """Find the fenced blocks of a page."""
    found, lines = [], (page.read_text(encoding="utf-8") if text is None else text).splitlines()
    at, said, part = 0, None, 0
    while at < len(lines):
        opened = _FENCE.fullmatch(lines[at])
        if opened is None:
            part += lines[at] == EMPTY_FOLDER
            said = _SAID.match(lines[at]) or (said if not lines[at].strip() else None)
            at += 1
            continue
        indent, fence = len(opened["indent"]), opened["indent"] + opened["fence"]
        end = next(n for n in range(at + 1, len(lines)) if lines[n].rstrip() == fence)
        body = "\n".join(line[indent:] for line in lines[at + 1 : end]) + "\n"
        what, value, vary = (
            (said["what"] or "", said["value"] or "", bool(said["vary"]))
            if said
            else ("", "", False)
        )
        if not opened["language"].startswith("{"):  # a directive of the site
            found.append(Block(page, at + 1, opened["language"], body, what, value, vary, part))
        at, said = end + 1, None
    return found


def needs_broker(page: Path) -> bool:
    """Tell whether a block of the page that runs speaks to a broker."""
    return any(block.runs and BROKER in block.text for block in blocks_of(page))


def commands_in(block: Block) -> Iterator[list[str]]:
    """Give the words of each line of a block that calls `meanstream`."""
    for line in block.text.replace("\\\n", " ").splitlines():
        words = re.sub(r"^\$ ", "", line.strip())
        if words.startswith("meanstream ") and "..." not in words.split():
            yield shlex.split(words, comments=True)[1:]


def refused(words: list[str]) -> str | None:
    """Tell what the parser says against a command, which is not run; None if it takes it."""
    command, words = _parser(), words[: words.index("|")] if "|" in words else list(words)
    while words and words[0] in getattr(command, "commands", {}):
        command = command.commands[words.pop(0)]
    try:
        command.make_parser(typer.Context(command)).parse_args(
            args=[w for w in words if w not in ("&", "&&")]
        )
    except Exception as error:
        return f"{type(error).__name__}: {getattr(error, 'message', error)}"
    return None


@cache
def _parser() -> Any:
    from meanstream.pipelines.commands import main

    return typer.main.get_command(main.app)


@dataclass
class PageRun:
    """Runs the blocks of one page in a folder: one namespace for its Python, one environment for
    its shell.

    `commands` is searched first for what the shell calls, see `tests/warm_command.py`.
    """

    folder: Path
    broker: str = ""
    commands: Path = Path(sys.executable).parent
    namespace: dict[str, Any] = field(default_factory=lambda: {"__name__": "__main__"})
    printed: str = ""
    part: int = 0
    environment: dict[str, str] = field(default_factory=lambda: dict(os.environ))

    def run(self, block: Block) -> None:
        """Run, write or compare a block.

        Raises
        ------
        AssertionError
            If it fails, or prints something else than the page shows.
        """
        if block.part != self.part:
            self._begin(block.part)
        text = block.text.replace(BROKER, self.broker) if self.broker else block.text
        if block.what == "file":
            place = self.folder / block.value
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(text, encoding="utf-8")
        elif block.what == "output":
            self._compare(block, self.printed, text)
        elif block.language == "python":
            self.printed = self._python(block, text)
        elif block.language in SHOWN:
            for command, shown in _sessions(text):
                self.printed = self._shell(block, command)
                self._compare(block, self.printed, shown)
        else:
            self.printed = self._shell(block, text)

    def _begin(self, part: int) -> None:
        """Go on in an empty folder, as a reader of a section does."""
        self.part, self.printed = part, ""
        self.folder = self.folder.parent / f"{self.folder.name.partition('.')[0]}.{part}"
        self.folder.mkdir()
        self.namespace = {"__name__": "__main__"}
        os.environ.clear()
        os.environ.update(self.environment)

    def _compare(self, block: Block, printed: str, shown: str) -> None:
        checker = doctest.OutputChecker()
        pair = [_TIMED.sub("0 ", text) for text in (shown, printed)]
        pair = [_NUMBER.sub("0", text) for text in pair] if block.vary else pair
        if not checker.check_output(*pair, _OPTIONS):
            raise AssertionError(f"{block.name} shows\n{shown}\nand it printed\n{printed}")

    def _python(self, block: Block, text: str) -> str:
        out, before = io.StringIO(), Path.cwd()
        try:
            os.chdir(self.folder)
            with contextlib.redirect_stdout(out):
                exec(compile(text, block.name, "exec"), self.namespace)  # noqa: S102 - our own pages
        finally:
            os.chdir(before)
        return out.getvalue()

    def _shell(self, block: Block, text: str) -> str:
        kept = self.folder.parent / f"{self.folder.name}.exports"
        script = f"set -e -o pipefail\n[ -e {kept} ] && . {kept}\n{text}\nexport -p > {kept}\n"
        ran = subprocess.run(
            ["bash", "-c", script],
            cwd=self.folder,
            env=page_environment(self.commands),
            capture_output=True,
            text=True,
            check=False,
            timeout=SECONDS,
            stdin=subprocess.DEVNULL,
        )
        assert ran.returncode == 0, (
            f"{block.name} ended with {ran.returncode}\n{ran.stdout}\n{ran.stderr[-3000:]}"
        )
        return ran.stdout


def page_environment(*commands: Path) -> dict[str, str]:
    """Give an environment in which no option is set, with these folders' commands first, then this
    interpreter's."""
    clean = {
        name: value for name, value in os.environ.items() if not name.startswith("MEANSTREAM_")
    }
    path = os.pathsep.join(
        map(str, (*commands, Path(sys.executable).parent, clean.get("PATH", "")))
    )
    return clean | {
        "PATH": path,
        "COLUMNS": "110",
        "LC_ALL": "C.UTF-8",
        "TZ": "UTC",
        "PYTHONPATH": str(ROOT),
    }


def _sessions(text: str) -> list[tuple[str, str]]:
    """Split a console block into commands and what is shown below each."""
    parts = re.split(r"(?m)^\$ ", text)[1:]
    pairs = []
    for part in parts:
        command, shown, more = [], [], True
        for line in part.splitlines(keepends=True):
            (command if more else shown).append(line)
            more = more and line.rstrip("\n").endswith("\\")
        pairs.append(("".join(command), "".join(shown)))
    return pairs
