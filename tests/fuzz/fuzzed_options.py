"""Options as nobody should write them, of every command: refused in one line before anything is
begun, or taken."""

from __future__ import annotations

import json
import math
import random
import re
import shutil
import signal
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import chdir, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from types import FrameType
from typing import Any

import apache_beam  # noqa: F401 - loaded here: what is interrupted while it loads stays broken in this process
import matplotlib.pyplot as plt  # noqa: F401 - the same
import typer

from meanstream.pipelines.commands.main import app
from meanstream.streaming.store.ledger_signature import make_signing_key
from tests.pipelines.command_line import SECRET, Ran, meanstream, run_agents, write_samples

KEY = {"MEANSTREAM_SECRET": SECRET}
SECONDS = 2
"""A command that works so long has taken its options."""


def _words(text: str) -> list[str]:
    return text.split()


NUMBERS = [
    *_words("""
    nan inf -inf -1 0 -0 1 2 0.5 -0.5 1e308 -1e308 1e-320 1e999 1000000000000000000000000000000 9223372036854775808
    -9223372036854775809 1_000 0x10 1,5 1/2 true abc - -- [1] 1e 1e-9 0.999999999 1.0000001 999999999999 \u0663
    \uff11
    """),
    "",
    " ",
    " 1",
    "1\0",
    "\n1",
    "1" * 400,
]
TEXTS = [
    *_words("""
    nan inf -1 0 1 true null None [] {} - -- .. . / ~ /dev/null /dev/full /dev/zero /proc/self/mem
    {folder}/nonexistent/x.jsonl {folder} {folder}/ {folder}/flights.csv {folder}/state.db {folder}/state.db-wal
    {folder}/absent.csv {folder}/x.parquet {folder}/flights.csv/x.jsonl file:{folder}/flights.csv kafka: kafka://
    kafka://: kafka:///t kafka://:9092/t kafka://h:99999/t kafka://h:x/t kafka://h/ kafka://h/t/u
    kafka://h/t?create=x kafka://h/t?x=1 kafka://h/t?config={folder}/absent.yaml http://x/y synthetic: synthetic:1
    synthetic:-1,2 synthetic:1e30,5 synthetic:3,x synthetic:3,5,nan synthetic:3,5,7,9 5parsecs 5 -1h 0s 1e400s
    1e300d nans infd 1h30m 1H 999999999d preferred: preferred:0 preferred:-1 preferred:x geometric: geometric:2
    geometric:2,0 geometric:2,nan geometric:1e30,2 every: every:0s every:-1h every:1e300d 127.0.0.1:99999
    127.0.0.1:-1 0.0.0.0:x : ::1 1:2,3 0:0-0 0:5-2 0:-1-2 x=1 =1 clip=2 share=[1] noise=1e999 2013-13-01
    9999-99-99T00:00Z learned learned_prior,x gauss 3:1,2:4 1:0 1:-1 nan:1 1:1e308 constant:0 uniform:5,1 0.5,0.5
    1,2,3 \u0663 \U0001f600 \u202e \u2028
    """),
    "",
    " ",
    "\t",
    "a\0b",
    "a\nb",
    "\x1b[31m",
    "x" * 300,
    "\u00e9" * 300,
    "x/" * 3000,
    "\ud800",
    "a b",
    "'",
    '"',
]
ENTRIES: tuple[Any, ...] = (
    True,
    [],
    [1],
    [1, 2],
    ["a"],
    {},
    {"a": 1},
    -1,
    0,
    1e308,
    10**30,
    "",
    "nan",
    "1:30",
    "yes",
    [[1]],
)
"""Entries of a configuration, of any kind that YAML has."""

BUDGET = "--lower -30 --upper 120 --epsilon 1"
SAMPLES = "--source {folder}/flights.csv --value dep_delay --time time_hour " + BUDGET
AGENTS = f"{SAMPLES} --agent tailnum --delta 1e-6 --name test --store {{folder}}/new.db"
ROUNDS = f"{SAMPLES} --user tailnum --window 7d --name test --store {{folder}}/new.db --sink {{folder}}/means.jsonl"
BASES: dict[str, str] = {
    "budget": "--store {folder}/state.db",
    "report": "{folder}/report.html --store {folder}/state.db",
    "schema": "release",
    "mcp": "--store {folder}/absent.db",
    "run agents": f"{AGENTS} --sink {{folder}}/new.jsonl --dry-run",
    "run agent-side": f"{AGENTS} --releases {{folder}}/new.jsonl --dry-run",
    "run collaborate": "--releases {folder}/releases.jsonl --store {folder}/state.db --until-end "
    "--sink {folder}/new.jsonl --quiet",
    "run rounds": f"{ROUNDS} --dry-run",
    "simulate agents": "--agents 3 --steps 5 --runs 1",
    "simulate rounds": "--users 20 --runs 1 --estimator dame",
    "theory agents": "--agents 3 --steps 5",
    "theory rounds": "--users 100 --samples 5",
    "reproduce ladder": "--runs 1 --out {folder}/state.db",
    "reproduce colme": "--runs 1 --out {folder}/state.db",
    "reproduce cummings": "--runs 1 --out {folder}/state.db",
    "reproduce dame": "--runs 1 --out {folder}/state.db",
    "reproduce drift": "--runs 1 --out {folder}/state.db",
    "reproduce kent": "--runs 1 --out {folder}/state.db",
    "explain": "",
    "explain together": "{folder}/absent.yaml {folder}/absent.yaml",
    "explain agents": f"{BUDGET} --delta 1e-6",
    "explain rounds": f"{BUDGET} --window 7d",
    "plan agents": "--agents 50 --epsilon 1 --delta 1e-6 --spread 0.1"
    " --stddev 0.2 --sizes point:20 --lower 0 --upper 1",
    "plan rounds": "--users 500 --epsilon 1 --sizes point:20 --lower 0 --upper 1",
    "dlq list": "--dead-letters {folder}/dead.jsonl",
    "dlq show": "--dead-letters {folder}/dead.jsonl",
    "dlq replay": "--source {folder}/flights.csv --store {folder}/state.db --from {folder}/dead.jsonl --dry-run",
    "ledger verify": "--store {folder}/state.db",
    "ledger backup": "--store {folder}/state.db --to {folder}/copy.db",
    "ledger export": "--store {folder}/state.db --to {folder}/ledger.jsonl",
    "ledger sign": "--store {folder}/state.db --signing-key {folder}/signing.key --to {folder}/head.json",
    "secret new": "{folder}/key",
    "store show": "--store {folder}/state.db",
    "store adopt": "--store {folder}/state.db --lateness 2h",
    "store forget": "nobody --store {folder}/state.db",
    "store move": "--from {folder}/state.db --to {folder}/other.db --partition 0",
    "get": "N0 --store {folder}/state.db",
    "init": "agents {folder}/new.yaml",
    "audit mechanism": "channel.one_bit",
    "audit engine": "--through agents --canaries 400",
    "audit rounds": "one_shot --users 400",
    "audit store": "{folder}/state.db",
    "audit topic": "{folder}/releases.jsonl --lower -30 --upper 120 --epsilon 1 --delta 1e-6",
    "demo": "--out {folder}/flights.csv",
    "demo rounds": "--out {folder}/flights.csv",
    "demo flights": "{folder}/absent/flights.csv",
}
"""What every command is called with otherwise; those that would work for long are stopped by their
--out."""

ALIASES = {
    "secret_file": "secret",
    "to": "backup export",
    "file": "secret kind store",  # of `init` the first argument is tried
    "names": "name",
    "address": "releases",
    "from_": "dead_letters",
    "value": "columns",
    "configs": "config",
    "user": "agent",
    "signer": "signature",
    "values": "value",
    "between_users": "sizes",
    "components": "bins",
    "follow": "refresh",  # without which what never ends tells nothing
}
"""Other words for an option, in what is about the thing that it names."""
COMBINED = (
    r" (must (be given|come|not come|be of the engine|be left out with|be in the source|"
    r"be a store that reads one topic|have one of|be a file with --json)"
    r"|takes no option| to follow, got )"
)
"""A rule on several options together has no value to show."""
FOUND_FALSE = {("ledger verify", "rows"), ("ledger verify", "head")}
"""What is compared with a ledger that is read: a ledger that has lost rows is exit code 1, no bad
option."""
BEGINNING = 900
"""Characters of a value that is longer than a line takes."""
RUNNING = {"dry_run", "quiet", "help", "help_all", "config"}
BESIDE = {"flights.csv", "absent", "state.db"}
"""What the line may name instead, where the command is stopped by its --out."""


@dataclass(slots=True)
class Found:
    """What became of the options: by how the command ended, and the faults by kind with some
    examples."""

    ended: Counter[str] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)
    examples: list[dict[str, Any]] = field(default_factory=list)

    def fault(self, kind: str, **what: Any) -> None:
        self.faults[kind] += 1
        if sum(example["fault"] == kind for example in self.examples) < 40:
            self.examples.append({"fault": kind, **what})


@dataclass(frozen=True, slots=True)
class Option:
    """One option or argument of a command."""

    command: str
    name: str
    typed: str
    is_flag: bool
    is_number: bool
    in_file: bool


class Slow(BaseException):
    """The command has begun to work."""


def all_options() -> list[Option]:
    """Find every option of every command that does something."""
    found: list[Option] = []

    def walk(command: Any, path: tuple[str, ...]) -> None:
        for name, part in getattr(command, "commands", {}).items():
            walk(part, (*path, name))
        if not path or (getattr(command, "commands", None) and not command.invoke_without_command):
            return
        in_file = any(parameter.name == "config" for parameter in command.params)
        for parameter in command.params:
            typed_here = getattr(getattr(command.callback, "taken", None), "typed", None)
            if (
                parameter.nargs != 1
                or parameter.name in RUNNING
                or (typed_here is not None and parameter.name not in typed_here)
            ):
                continue
            descriptor = getattr(parameter, "type_descriptor", None)
            kind = (
                str(descriptor.annotation)
                if descriptor is not None
                else type(parameter.type).__name__.lower()
            )
            is_flag, is_number = (
                bool(getattr(parameter, "is_flag", False)),
                re.search(r"(^|\W)(int|float)", kind),
            )
            typed = parameter.opts[0] if parameter.opts[0].startswith("-") else ""
            found.append(
                Option(
                    " ".join(path),
                    str(parameter.name),
                    typed,
                    is_flag,
                    is_number is not None,
                    in_file,
                )
            )

    walk(typer.main.get_command(app), ())
    return found


def fuzz_options(seed: int, count: int, *, only: str = "") -> Found:
    """Give one bad value to one option of one command (or of those whose names begin so), so many
    times."""
    rng, found, options = random.Random(seed), Found(), all_options()  # noqa: S311 - test data
    assert {option.command for option in options} == set(BASES)
    options = [
        one for one in options if one.command.startswith(only) and (one.in_file or not one.is_flag)
    ]
    commands = sorted({option.command for option in options})
    by_command = {
        name: [option for option in options if option.command == name] for name in commands
    }
    with TemporaryDirectory() as scratch:
        place = World(Path(scratch))
        for number in range(count):
            one = rng.choice(
                by_command[commands[number % len(commands)]] if number % 2 else options
            )
            place.try_one(one, *_value(rng, one, place.folder), found)
    return found


def _value(rng: random.Random, option: Option, folder: Path) -> tuple[Any, bool]:
    """Choose a value, and whether it stands in a configuration file."""
    if option.in_file and option.typed and (option.is_flag or rng.random() < 0.1):
        return rng.choice(ENTRIES), True
    pool = NUMBERS if option.is_number and rng.random() < 0.9 else TEXTS
    value = rng.choice(pool).replace("{folder}", str(folder))
    return (
        "-" if value == "--" and not option.typed else value,
        False,
    )  # after which there are arguments only


class World:
    """A folder with samples, a store and its releases, which every command finds as it was."""

    def __init__(self, scratch: Path) -> None:
        self.folder = scratch / "world"
        self.folder.mkdir()
        self._kept = scratch / "kept"
        write_samples(self.folder / "flights.csv")
        ran = run_agents(self.folder, lower=-30, dead_letters=self.folder / "dead.jsonl")
        assert ran.code == 0, ran.err
        make_signing_key(self.folder / "signing.key")
        shutil.copytree(self.folder, self._kept)
        self._before = self._seen()

    def _seen(self) -> dict[str, tuple[int, int]]:
        return {
            path.name: (path.stat().st_size, path.stat().st_mtime_ns)
            for path in self.folder.iterdir()
            if path.is_dir() or not path.name.endswith((".lock", "-shm", "-wal"))
        }

    def try_one(self, option: Option, value: Any, in_file: bool, found: Found) -> None:
        """Run a command with one bad value, and judge how it ended."""
        config = self.folder.parent / "config.yaml"
        words = f"{option.command} {BASES[option.command]}".format(folder=self.folder).split(" ")
        if in_file:
            config.write_text(json.dumps({option.name.replace("_", "-"): value}))
            words += ["--config", str(config)]
        elif option.typed:
            if option.typed in words:
                at = words.index(option.typed)
                del words[at : at + 2]
            words += [f"{option.typed}={value}"]
        else:
            words[len(option.command.split(" "))] = value
        what = {"command": option.command, "option": option.name, "value": value}
        try:
            with (
                taking_at_most(SECONDS),
                chdir(self.folder),
            ):  # a name without a folder is made there
                ran = meanstream(*words, environment=KEY)
        except Slow:
            found.ended["taken, and begun to work"] += 1
        except BaseException as error:
            found.fault("escaped", **what, error=repr(error))
        else:
            self._judge(ran, what, found)
        if self._seen() != self._before:
            shutil.rmtree(self.folder)
            shutil.copytree(self._kept, self.folder)
            self._before = self._seen()

    def _judge(self, ran: Ran, what: Mapping[str, Any], found: Found) -> None:
        lines = ran.err.decode(errors="surrogatepass").splitlines()
        if ran.code == 0:
            found.ended["taken"] += 1
            return
        found.ended[f"exit code {ran.code}"] += 1
        said = ran.err.decode(errors="surrogatepass")
        if "Traceback" in said or "its text is not shown" in said:
            found.fault("traceback", **what, said=said[-400:])
        elif ran.code == 1 and "No space left on device" in said and len(lines) == 1:
            found.ended["taken, and no room"] += 1
        elif "memory must suffice" in said:
            found.ended["taken, and too large"] += 1
        elif ran.code == 1 and (
            (what["command"], what["option"]) in FOUND_FALSE or "must be as claimed" in said
        ):
            found.ended["taken, and found false"] += 1
        elif ran.code != 2:
            found.fault("not refused", **what, said=said[:300])
        elif said.count("\n") != 1 or len(lines) < 1 or not said.startswith("meanstream: "):
            found.fault("not one line", **what, said=said[:300])
        elif ran.out:
            found.fault("output before it", **what, said=said[:300])
        elif self._seen() != self._before:
            found.fault("something was begun", **what, said=said[:300])
        elif not any(
            f"/{name}'" in said
            for name in BESIDE
            if what["command"].startswith(("demo", "reproduce"))
        ):
            in_address = "://" in str(
                what["value"]
            )  # the part of it that breaks a rule has a name of its own
            whole = (
                "must be a store that reads one topic" in said
            )  # the world has none for `store move`
            if not (in_address or whole) and not any(
                _names(said, name)
                for name in (str(what["option"]), *ALIASES.get(str(what["option"]), "").split())
            ):
                found.fault("option not named", **what, said=said[:300])
            if not _shows(said, what["value"]) and not re.search(COMBINED, said):
                found.fault("value not shown", **what, said=said[:300])


def _names(said: str, option: str) -> bool:
    words = said.replace("-", "_").replace("'", " ")
    return option.strip("_") in [word.strip("_") for word in re.split(r"[^A-Za-z_0-9]+", words)]


def _shows(said: str, value: Any) -> bool:
    """Say whether a line shows a value: as it was typed, as Python writes it, or as the number that
    it is."""
    if any(
        text in said for text in (str(value), repr(value), ascii(value), repr(str(value)))
    ) or value in ("", [], {}):
        return True
    if len(str(value)) > BEGINNING and str(value)[:BEGINNING] in said:
        return True  # of a value that fills screens the beginning is enough
    numbers = [_number(text) for text in re.findall(r"[-+]?(?:nan|inf|[\d.]+(?:e[-+]?\d+)?)", said)]
    meant = [_number(text) for text in str(value).split(",")]
    if None not in meant:
        return {str(number) for number in meant} <= {
            str(number) for number in numbers
        }  # texts, for nan is not nan
    if "://" in str(value):  # the part of the address that breaks the rule
        return "got '" in said or "got no '" in said
    short = str(value).strip().split("/")[-1][:40]
    return bool(short) and (short in said or ("got " in said and isinstance(value, list | dict)))


def _number(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return math.copysign(math.inf, number) if abs(number) > 1e300 else number


def _must_go_on(frame: FrameType | None) -> bool:
    """Say whether a module is imported, which is broken if it is left in the middle, or something
    is cleaned up.

    What a callback of a weak reference or of the collector raises goes nowhere but into a warning,
    which fails a test.
    """
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            return True
        if frame.f_code.co_name in {"__del__", "gc_callback"}:
            return True
        if frame.f_code.co_filename.endswith("/weakref.py"):
            return True
        frame = frame.f_back
    return False


@contextmanager
def taking_at_most(seconds: float) -> Iterator[None]:
    """Interrupt what takes longer, but no import and no cleaning up."""

    def interrupt(_: int, frame: FrameType | None) -> None:
        if _must_go_on(frame):
            signal.setitimer(signal.ITIMER_REAL, 0.05)
        else:
            raise Slow

    before = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
