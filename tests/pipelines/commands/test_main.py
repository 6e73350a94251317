"""The command as a whole: every command explains itself with an example, and ends as a shell
expects."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer

from meanstream.pipelines.commands import main
from meanstream.pipelines.commands.command_parts import PARTS
from meanstream.pipelines.commands.main import app
from meanstream.pipelines.options.help_text import with_environment_and_headings
from meanstream.pipelines.options.near_names import OTHER_COMMANDS, OTHER_WORDS
from meanstream.pipelines.options.parsing import TypedValues
from meanstream.streaming.client_logs import ClientLogs, current_client_logs
from tests.pipelines.command_line import meanstream


def commands() -> Iterator[list[str]]:
    """Every command with its group, from the application itself."""

    def walk(command: object, path: list[str]) -> Iterator[list[str]]:
        inner = getattr(command, "commands", None)
        if inner is None:
            yield path
            return
        if getattr(command, "invoke_without_command", False):
            yield path  # a group that does something itself
        for name, child in inner.items():
            yield from walk(child, [*path, name])

    return walk(typer.main.get_command(app), [])


@pytest.mark.parametrize("path", list(commands()), ids=" ".join)
def test_every_command_has_help_with_an_example_of_itself(path: list[str]) -> None:
    ran = meanstream(*path, "--help")
    assert (ran.code, ran.err) == (0, b"")
    text = " ".join(ran.out.decode().split())
    assert re.search(f"Examples?: meanstream {' '.join(path)}", text)
    assert "--help" in text


def test_the_list_of_parts_says_what_their_own_help_begins_with() -> None:
    parts = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    assert {name: part.get_short_help_str(1000) for name, part in parts.items()} == {
        name: part.line for name, part in PARTS.items()
    }
    assert {name: hasattr(part, "commands") for name, part in parts.items()} == {
        name: part.is_group for name, part in PARTS.items()
    }
    listed = meanstream("--help")
    assert listed.code == 0
    assert re.findall(r"^  (\w+)  ", listed.out.decode(), re.MULTILINE) == list(parts)


def test_the_commands_of_the_manual_exist() -> None:
    assert {" ".join(path) for path in commands()} >= {
        "run agents",
        "explain agents",
        "simulate agents",
        "theory agents",
        "theory rounds",
        "reproduce colme",
        "demo",
        "demo rounds",
        "plan agents",
        "plan rounds",
        "run rounds",
        "simulate rounds",
        "reproduce dame",
        "explain rounds",
        "budget",
        "ledger verify",
        "schema",
    }


WITHOUT_OPTIONS = (["schema"], ["init"], ["mcp"])
"""They write or serve one thing, whose name or place is all that is said."""


@pytest.mark.parametrize(
    "path", [path for path in commands() if path not in WITHOUT_OPTIONS], ids=" ".join
)
def test_every_command_gives_json_and_takes_a_configuration_where_it_has_many_options(
    path: list[str],
) -> None:
    text = meanstream(*path, "--help").out.decode()
    text = meanstream(*path, "--help-all").out.decode() if "--help-all" in text else text
    assert (
        "--config" in text
        or "{configs}..." in text
        or "CONFIGS..." in text
        or text.count("\n  --") <= 13
    )
    assert "--json" in text


def slots() -> dict[str, int]:
    """How many options each command types."""
    root = with_environment_and_headings(typer.main.get_command(app))
    found = {}
    for path in commands():
        command = root
        for word in path:
            command = getattr(command, "commands", {}).get(word, command)
        typed = [
            one for one in command.params if one.param_type_name == "option" and not one.hidden
        ]
        found[" ".join(path)] = len([one for one in typed if one.name != "help_all"])
    return found


def test_options_are_few(capsys: pytest.CaptureFixture[str]) -> None:
    """Over all commands; `pytest -rP` prints them. A command about a run takes its file or its
    store instead."""
    found = slots()
    for name, count in sorted(found.items(), key=lambda one: -one[1]):
        print(f"{count:4} {name}")  # noqa: T201
    print(sum(found.values()), "in", len(found), "commands")  # noqa: T201
    assert sum(found.values()) <= 504
    assert (
        max(count for name, count in found.items() if name.startswith(("explain", "audit", "dlq")))
        <= 15
    )


def test_without_a_command_the_help_is_shown() -> None:
    ran = meanstream()
    assert b"Commands" in ran.out + ran.err
    assert b"Traceback" not in ran.err


def test_a_fault_of_the_program_is_not_a_bad_option(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only refusals are shortened to one line; a defect keeps its traceback."""

    def broken(name: str) -> None:
        raise RuntimeError("a defect")

    monkeypatch.setattr("meanstream.streaming.events.wire.wire_event_schema", broken)
    ran = meanstream("schema", "release")
    assert (ran.code, ran.out) == (1, b"")
    assert b"in broken" in ran.err
    assert b"RuntimeError (" in ran.err


def test_as_a_process_of_its_own() -> None:
    """The installed entry point's exit codes and streams, once through a real process."""
    program = [sys.executable, "-m", "meanstream.pipelines.commands.main"]
    good = subprocess.run([*program, "--help"], capture_output=True, check=False)
    assert (good.returncode, good.stderr) == (0, b"")
    bad = subprocess.run(
        [*program, "explain", "agents", "--epsilo", "1"], capture_output=True, check=False
    )
    assert (bad.returncode, bad.stdout, bad.stderr.count(b"\n")) == (2, b"", 1)
    assert bad.stderr.startswith(b"meanstream: ")


@pytest.mark.parametrize(
    ("usual", "option"),
    [
        (["-h"], ["--help"]),
        (["help"], ["--help"]),
        (["help", "run"], ["run", "--help"]),
        (["help", "run", "agents"], ["run", "agents", "--help"]),
        (["run", "-h"], ["run", "--help"]),
        (["run", "agents", "-h"], ["run", "agents", "--help"]),
        (["version"], ["--version"]),
        (["-V"], ["--version"]),
    ],
    ids=" ".join,
)
def test_usual_words_show_help_and_version(usual: list[str], option: list[str]) -> None:
    ran = meanstream(*usual)
    assert (ran.code, ran.err) == (0, b"")
    assert ran.out == meanstream(*option).out


def test_no_summary_in_a_list_of_commands_is_cut() -> None:
    groups = {tuple(path[:-1]) for path in commands()}
    for group in groups:
        listed = meanstream(*group, "--help").out.decode().partition("\nCommands:\n")[2]
        assert listed, group
        assert "..." not in listed, group


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ["run", "agents", "--epsilonn", "1"],
            "No such option: --epsilonn; did you mean '--epsilon'?",
        ),
        (["run", "agents", "--sorce", "x"], "No such option: --sorce; did you mean '--source'?"),
        (["run", "agents", "--nothing-like-it"], "No such option: --nothing-like-it"),
        (["run", "agents", "--hlep"], "No such option: --hlep; did you mean '--help'?"),
        (["run", "agents", "--eps", "1"], "No such option: --eps; did you mean '--epsilon'?"),
        (["run", "agents", "--max-"], "No such option: --max-"),
        (["run", "agents", "--input", "x"], "No such option: --input; did you mean '--source'?"),
        (["run", "agents", "--bounds", "0"], "No such option: --bounds; did you mean '--lower'?"),
        (
            ["run", "agents", "--group-by", "x"],
            "No such option: --group-by; did you mean '--agent'?",
        ),
        (
            ["run", "rounds", "--group-by", "x"],
            "No such option: --group-by; did you mean '--user'?",
        ),
    ],
)
def test_only_a_near_option_is_suggested(words: list[str], said: str) -> None:
    assert meanstream(*words).message == said


@pytest.mark.parametrize(
    ("word", "end"),
    [
        ("rn", "Did you mean 'run'?"),
        ("agents", "Did you mean 'run agents', 'explain agents', 'simulate agents'?"),
        ("runagents", "Did you mean 'run agents'?"),
        ("forget", "Did you mean 'store forget'?"),
        ("verify", "Did you mean 'ledger verify'?"),
        ("erase", "Did you mean 'store forget'?"),
        ("qqqq", "`meanstream --help` lists them."),
    ],
)
def test_a_word_that_is_no_command_names_the_command_that_may_be_meant(word: str, end: str) -> None:
    assert meanstream(word).message == f"No such command '{word}'. {end}"


def test_every_word_of_another_tool_stands_for_something_that_there_is() -> None:
    """A word that is an option or a command itself would never be looked up."""
    paths = {" ".join(path) for path in commands()}
    paths |= {path.partition(" ")[0] for path in paths}
    assert {*OTHER_COMMANDS.values()} <= paths
    assert paths.isdisjoint(OTHER_COMMANDS)
    shown = (
        meanstream("run", "agents", "--help-all").out
        + meanstream("run", "rounds", "--help-all").out
    )
    options = {*re.findall(r"--[a-z-]+", shown.decode())}
    assert {*OTHER_WORDS} <= options


def test_a_typo_in_a_file_of_options_is_named(tmp_path: Path) -> None:
    file = tmp_path / "run.yaml"
    file.write_text("lower: 0\nepsilonn: 1\n", encoding="utf-8")
    ran = meanstream("run", "agents", "--config", str(file))
    assert ran.message == "config has no option 'epsilonn'; did you mean 'epsilon'?"
    file.write_text("lower: 0\nupper: [1\n", encoding="utf-8")
    ran = meanstream("run", "agents", "--config", str(file))
    assert ran.message == f"config must be YAML, got {str(file)!r}, which is none at line 3"


def test_log_lines_of_clients_end_with_the_command_that_made_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = typer.Typer()
    inside: list[ClientLogs | None] = []

    @made.command("works")
    def works() -> None:
        inside.append(current_client_logs())
        assert inside[0] is not None
        assert not inside[0].ended

    @made.command("fails")
    def fails() -> None:
        inside.append(current_client_logs())
        raise ValueError

    monkeypatch.setattr(main, "_made_app", lambda *_: made)
    command = main._command.__wrapped__("run", None, only_listed=False)
    command(["works"], standalone_mode=False, obj=TypedValues())
    with pytest.raises(ValueError, match=r"^$"):
        command(["fails"], standalone_mode=False, obj=TypedValues())
    first, second = inside
    assert first is not second
    assert first is not None
    assert second is not None
    assert (first.ended, second.ended) == (True, True)
    assert current_client_logs() is None
