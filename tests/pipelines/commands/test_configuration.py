"""Where an option's value comes from: command line, environment, YAML, default; a file to begin
with; grouped help."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import yaml

from meanstream.pipelines.commands.init_command import KINDS
from tests.pipelines.command_line import SECRET, meanstream


def shown(
    *arguments: str, environment: dict[str, str] | None = None
) -> dict[str, tuple[object, str]]:
    """Value and origin of each option in force."""
    ran = meanstream("run", "agents", *arguments, "--print-config", environment=environment)
    assert (ran.code, ran.err) == (0, b""), ran.err
    found = {}
    for line in ran.out.decode().splitlines():
        entry, separator, origin = line.rpartition("  # ")
        if separator and not entry.startswith("#"):
            ((name, value),) = yaml.safe_load(entry).items()
            found[name] = value, origin
    return found


def test_the_command_line_wins_then_the_environment_then_yaml(tmp_path: Path) -> None:
    config = tmp_path / "agents.yaml"
    config.write_text("lower: -1\nupper: 5\nlevel: 0.5\nschedule: every:1h\n")
    environment = {"MEANSTREAM_UPPER": "6", "MEANSTREAM_LEVEL": "0.6", "MEANSTREAM_QUIET": "true"}
    found = shown("--config", str(config), "--level", "0.7", environment=environment)
    assert found["lower"] == (-1.0, str(config))
    assert found["schedule"] == ("every:1h", str(config))
    assert found["upper"] == (6.0, "environment (MEANSTREAM_UPPER)")
    assert found["level"] == (0.7, "command line")
    assert found["quiet"] == (True, "environment (MEANSTREAM_QUIET)")
    assert found["quorum"] == (2, "default")


def test_what_is_printed_is_a_file_of_options_that_means_the_same(tmp_path: Path) -> None:
    options = (
        "--lower",
        "-1",
        "--source",
        "kafka://h:1/t?group=a&start=latest",
        "--agent",
        "@key",
        "--no-sort",
    )
    first = shown(*options)
    config = tmp_path / "again.yaml"
    config.write_bytes(meanstream("run", "agents", *options, "--print-config").out)
    again = shown("--config", str(config))
    assert {name: value for name, (value, _) in again.items()} == {
        name: value for name, (value, _) in first.items()
    }


def test_no_secret_is_shown_and_a_misspelled_variable_is() -> None:
    environment = {"MEANSTREAM_SECRET": SECRET, "MEANSTREAM_EPSILN": "3"}
    hidden = ("--source", "kafka://me:hush@h:1/t", "--runner-arg", "--password=hush")
    out = meanstream(
        "run", "agents", *hidden, "--print-config", environment=environment
    ).out.decode()
    assert SECRET not in out
    assert "hush" not in out
    assert "# key of the noise: the variable MEANSTREAM_SECRET (not shown)" in out
    assert "# MEANSTREAM_EPSILN is in the environment and no option of this command" in out


def test_a_run_tells_of_variables_that_are_no_options_of_it_and_goes_on(tmp_path: Path) -> None:
    environment = {
        **{
            "MEANSTREAM_EPSILN": "hush",
            "MEANSTREAM_WINDOW": "7d",
            "MEANSTREAM_Q1Z": "",
            "MEANSTREAM_A\nB": "",
        },
        **{"MEANSTREAM_SECRET": SECRET, "MEANSTREAM_SERVERS": "/x", "MEANSTREAM_HORIZON": "30"},
        # of a service in Kubernetes that is called meanstream
        **{
            "MEANSTREAM_PORT": "tcp://10.0.0.1:80",
            "MEANSTREAM_SERVICE_HOST": "10.0.0.1",
            "MEANSTREAM_SERVICE_PORT": "80",
        },
        **{
            "MEANSTREAM_PORT_80_TCP_ADDR": "10.0.0.1",
            "MEANSTREAM_DELAYS_SERVICE_PORT_METRICS": "9464",
        },
    }
    named = (
        "--source",
        "synthetic:5,100",
        "--lower",
        "0",
        "--upper",
        "1",
        "--epsilon",
        "1",
        "--delta",
        "1e-6",
    )
    run = (
        "run",
        "agents",
        *named,
        "--store",
        str(tmp_path / "s.db"),
        "--sink",
        str(tmp_path / "e.jsonl"),
        "--quiet",
    )
    ran = meanstream(*run, environment=environment)
    ignored = "is in the environment and no option of this command, which ignores it"
    assert ran.code == 0
    assert [line.partition(" meanstream.run: ")[2] for line in ran.err.decode().splitlines()] == [
        rf"'MEANSTREAM_A\nB' {ignored}",
        f"MEANSTREAM_EPSILN {ignored}: did you mean MEANSTREAM_EPSILON?",
        f"MEANSTREAM_Q1Z {ignored}",
        f"MEANSTREAM_WINDOW {ignored}: one of rounds",
    ]
    told = meanstream(*run, "--log-format", "json", environment=environment)
    assert [json.loads(line)["level"] for line in told.err.splitlines()][:4] == ["warning"] * 4
    assert "hush" not in told.err.decode()
    right = {"MEANSTREAM_SECRET": SECRET, "MEANSTREAM_HORIZON": "30"}
    assert meanstream(*run, environment=right).err == b""


@pytest.mark.parametrize(
    "place",
    [
        "kafka://me:hu/sh@h:1/t",
        "kafka://me:hu@sh@h:1/t",
        "kafka://me:hu?sh@h:1/t?group=a",
        "kafka://h:1/t?registry=http://me:hush@r:2&group=a",
        "kafka://h:1/t?registry=http%3A%2f%2Fme%3Ahush%40r:2&group=a",
    ],
)
def test_a_password_before_a_host_is_not_shown_whatever_is_in_it(place: str) -> None:
    out = meanstream("run", "agents", "--source", place, "--print-config").out.decode()
    assert "sh@" not in out
    assert "hu" not in next(line for line in out.splitlines() if line.startswith("source:"))


@pytest.mark.parametrize(
    "given",
    [
        "--pass=hush",
        "--sasl_jaas_config=a required password='hush';",
        "--credentials=hush",
        "--PWD=hush",
    ],
)
def test_what_is_called_a_secret_is_not_shown(given: str) -> None:
    assert b"hush" not in meanstream("run", "agents", "--runner-arg", given, "--print-config").out


@pytest.mark.parametrize(
    "place",
    [
        "kafka://h:1/t?group=a@b&start=latest",
        "kafka://h:1/t?group=monkey&start=latest",
        "kafka://h:1/t?config=/a@b.yaml",
        "a@b.csv",
    ],
)
def test_what_is_no_password_is_shown(place: str) -> None:
    assert shown("--source", place)["source"][0] == place


def test_a_variable_that_no_option_could_be_is_one_line() -> None:
    message = meanstream("run", "agents", environment={"MEANSTREAM_HORIZON": "many"}).message
    assert message == "horizon must be a decimal number, got 'many'"


def _is_prose(line: str) -> bool:
    """Tell a line of help that begins as an option does."""
    return len(line.split("  # ", maxsplit=1)[0].split()) > 2


@pytest.mark.parametrize("kind", KINDS)
def test_a_file_to_begin_with_has_every_option_at_its_default(kind: str, tmp_path: Path) -> None:
    file = tmp_path / "options.yaml"
    assert meanstream("init", kind, str(file)).code == 0
    text = file.read_text()
    plain = meanstream("run", kind, "--print-config").out
    assert meanstream("run", kind, "--config", str(file), "--print-config").code == 0
    names = set(re.findall(r"^(?:# )?(\w+):.*  # ", plain.decode(), re.MULTILINE))
    entries = re.findall(r"^(?:# )?((\w+):.*)$", text, re.MULTILINE)
    everything = tmp_path / "everything.yaml"
    everything.write_text(
        "\n".join(entry for entry, name in entries if name in names and not _is_prose(entry))
    )
    said = meanstream("run", kind, "--config", str(everything), "--print-config").out.decode()
    unsourced = [line.rpartition("  # ")[0] for line in said.splitlines()]
    assert unsourced == [line.rpartition("  # ")[0] for line in plain.decode().splitlines()]
    assert "  # required" in text
    refused = meanstream("run", kind, "--config", str(file))
    assert "must be given" in refused.message
    assert meanstream("init", kind, str(file)).message.startswith("file must be a new file")


@pytest.mark.parametrize("kind", KINDS)
def test_help_shows_first_what_a_first_run_needs(kind: str) -> None:
    first, every = (
        meanstream("run", kind, asked).out.decode() for asked in ("--help", "--help-all")
    )
    shown, known = (
        set(re.findall(r"^  (--[\w-]+)", text, re.MULTILINE)) for text in (first, every)
    )
    assert shown < known
    assert 6 <= len(shown - {"--help", "--help-all"}) <= 13
    assert first.endswith(f"options: meanstream run {kind} --help-all\n")


def test_help_is_grouped_and_marks_what_is_required() -> None:
    text = meanstream("run", "agents", "--help-all").out.decode()
    headings = [
        line for line in text.splitlines() if line.endswith(":") and not line.startswith(" ")
    ]
    assert headings[:5] == ["Input:", "Privacy:", "Collaboration:", "Output:", "Operation:"]
    assert text.count("[required]") == 4
    assert "MEANSTREAM_NAME" in text


def test_lateness_is_one_word_over_both_engines() -> None:
    out = meanstream("run", "rounds", "--lateness", "7m", "--print-config").out.decode()
    assert "allowed_lateness: 7m  # command line" in out
