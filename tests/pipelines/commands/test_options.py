"""A bad option is one line that names it, the rule and the value, exit code 2, and nothing else
happened."""

from __future__ import annotations

import gzip
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer

from meanstream.pipelines.commands.main import app
from meanstream.pipelines.commands.report import report_result as result
from meanstream.pipelines.options.help_text import with_environment_and_headings
from meanstream.streaming.store.state_store import Store
from tests.pipelines.command_line import (
    SECRET,
    arguments,
    asks,
    files,
    meanstream,
    options,
    run_agents,
    write_samples,
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_samples(tmp_path / "flights.csv")
    return tmp_path


PRIVACY: list[tuple[dict[str, Any], list[str]]] = [
    ({"epsilon": 0}, ["epsilon", "positive", "0"]),
    ({"epsilon": -1}, ["epsilon", "positive", "-1"]),
    ({"epsilon": "nan"}, ["epsilon", "finite", "nan"]),
    ({"epsilon": "inf"}, ["epsilon", "finite", "inf"]),
    ({"epsilon": "much"}, ["epsilon", "decimal number", "number"]),
    ({"delta": -0.1}, ["delta", "in [0, 1)", "-0.1"]),
    ({"delta": 1}, ["delta", "in [0, 1)", "1"]),
    ({"delta": 2}, ["delta", "in [0, 1)", "2"]),
    ({"delta": "nan"}, ["delta", "in [0, 1)", "nan"]),
    ({"delta": 0, "noise": "gaussian"}, ["delta", "more than 0", "gaussian"]),
    ({"lower": 120}, ["lower", "upper", "120"]),
    ({"lower": 200}, ["lower", "upper", "200"]),
    ({"upper": "inf"}, ["upper", "finite", "inf"]),
    ({"lower": None}, ["lower", "be given"]),
    ({"upper": None}, ["upper", "be given"]),
    ({"epsilon": None}, ["epsilon", "be given"]),
    ({"epsilon": 2, "calibration": "classical"}, ["epsilon", "at most 1", "classical", "2"]),
    ({"counter": "toeplitz", "noise": "laplace"}, ["noise", "gaussian", "toeplitz"]),
    ({"counter": "pm2", "levels": 0}, ["levels", "at least", "0"]),
    ({"counter": "pm2", "levels": 2}, ["levels", "at least 6", "2"]),
    ({"counter": "pm1", "levels": 3}, ["levels", "pm1", "3"]),
    ({"counter": "pm3"}, ["counter", "pm1, pm2, two_level, toeplitz, optimal", "pm3"]),
    ({"noise": "uniform"}, ["noise", "auto, laplace, staircase, gaussian", "uniform"]),
    ({"calibration": "guessed"}, ["calibration", "classical or analytic", "guessed"]),
    ({"horizon": 0}, ["horizon", "lie in 1..", "0"]),
    ({"horizon": 2.5}, ["horizon", "integer"]),
    ({"schedule": "sometimes"}, ["schedule", "geometric:FIRST,FACTOR", "sometimes"]),
    ({"schedule": "geometric:0,2"}, ["schedule", "at least 1", "geometric:0,2"]),
    ({"schedule": "geometric:10,1"}, ["schedule", "above 1", "geometric:10,1"]),
    ({"schedule": "every:0s"}, ["every", "positive", "0"]),
    ({"schedule": "every:1"}, ["schedule", "duration", "every:1"]),
    ({"mode": "wild"}, ["mode", "'tuned' or 'paper'", "wild"]),
]
ESTIMATES: list[tuple[dict[str, Any], list[str]]] = [
    ({"level": 0}, ["level", "between 0 and 1", "0"]),
    ({"level": 1.5}, ["level", "between 0 and 1", "1.5"]),
    (
        {"collaboration": "gossip"},
        [
            "collaboration",
            "learned_prior, pooled_prior, james_stein, tests, consensus, none",
            "gossip",
        ],
    ),
]
RUN: list[tuple[dict[str, Any], list[str]]] = [
    ({"lateness": "soon"}, ["lateness", "duration", "soon"]),
    ({"lateness": "-1h"}, ["lateness", "duration", "-1h"]),
    ({"refresh": "often"}, ["refresh", "duration", "often"]),
    ({"source": None}, ["source", "be given"]),
    ({"source": "nowhere.csv"}, ["source", "readable file", "nowhere.csv"]),
    (
        {"agent": "tailnumber"},
        ["agent column", "in the source", "tailnumber", "did you mean 'tailnum'?"],
    ),
    ({"value": "delay"}, ["value column", "'delay'", "did you mean 'dep_delay'?"]),
    ({"time": "xyz"}, ["time column", "'xyz'", "tailnum, dep_delay, time_hour"]),
    ({"id": "flght"}, ["id column", "'flght'", "did you mean 'flight'?"]),
    ({"value": "tailnum"}, ["columns", "distinct", "tailnum"]),
    ({"sink": "estimates.xml"}, ["sink", ".jsonl", "estimates.xml"]),
    ({"releases": "releases.xml"}, ["releases", ".jsonl", "releases.xml"]),
    (
        {"notices": "no/such/folder/n.jsonl"},
        ["notices", "existing folder", "no/such/folder/n.jsonl"],
    ),
    ({"store": "no/such/folder/state.db"}, ["store", "folder", "no/such/folder/state.db"]),
    ({"secret_file": "nowhere.key"}, ["secret", "readable file", "nowhere.key"]),
]


@pytest.mark.parametrize(("wrong", "said"), PRIVACY + ESTIMATES + RUN, ids=str)
def test_run_agents_refuses_and_leaves_nothing_behind(
    wrong: dict[str, Any], said: list[str], folder: Path
) -> None:
    before = files(folder)
    ran = meanstream("run", "agents", *arguments(options(folder, **wrong)))
    for part in said:
        assert part in ran.message
    assert files(folder) == before


@pytest.mark.parametrize(("wrong", "said"), PRIVACY + ESTIMATES, ids=str)
def test_explain_agents_refuses_the_same(
    wrong: dict[str, Any], said: list[str], tmp_path: Path
) -> None:
    ran = asks("explain", "agents", *arguments(options(tmp_path, **wrong)))
    for part in said:
        assert part in ran.message


def test_sources_that_are_not_what_they_are_called(folder: Path) -> None:
    text = (folder / "flights.csv").read_bytes()
    (folder / "flights.txt").write_bytes(text)
    (folder / "empty.csv").write_bytes(b"")
    (folder / "text.csv.gz").write_bytes(text)
    (folder / "torn.csv.gz").write_bytes(gzip.compress(text)[:-40])
    (folder / "text.zip").write_bytes(text)
    (folder / "text.parquet").write_bytes(text)
    with zipfile.ZipFile(folder / "two.csv.zip", "w") as archive:
        archive.writestr("a.csv", text)
        archive.writestr("b.csv", text)
    before = files(folder)
    for name in (
        "flights.txt",
        "empty.csv",
        "text.csv.gz",
        "text.zip",
        "text.parquet",
        "two.csv.zip",
        "torn.csv.gz",
    ):
        ran = meanstream("run", "agents", *arguments(options(folder, source=folder / name)))
        assert ran.message.startswith("source must ")
        assert name in ran.message
        assert files(folder) == before


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        (["rum"], ["rum", "run"]),
        (["run", "agent"], ["agent", "agents"]),
        (["run", "agents", "--lowr", "1"], ["--lowr", "--lower"]),
        (["run", "agents", "--epsilon"], ["--epsilon", "requires an argument"]),
        (["run", "agents", "stray"], ["stray"]),
        (["schema"], ["NAME"]),
        (["schema", "realease"], ["name", "release", "'realease'"]),
        (["budget"], ["--store"]),
        (["budget", "--store", "nowhere.db"], ["store", "existing file", "nowhere.db"]),
    ],
)
def test_unknown_commands_and_options(typed: list[str], said: list[str]) -> None:
    message = meanstream(*typed).message
    for part in said:
        assert part.lower() in message.lower()


# -- the configuration file -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("epsilom: 1\n", ["config", "'epsilom'", "did you mean 'epsilon'?"]),
        ("max-agent: 3\n", ["config", "'max-agent'", "did you mean 'max-agents'?"]),
        ("help: true\n", ["config", "'help'"]),
        ("epsilon: [1\n", ["config", "YAML"]),
        ("epsilon: 1\n\tdelta: 2\n", ["config", "YAML"]),
        ("- epsilon\n", ["config", "list"]),
        ("", ["config", "NoneType"]),
        ("just text", ["config", "str"]),
        ("epsilon: much\n", ["epsilon", "number"]),
        ("epsilon: [1, 2]\n", ["epsilon"]),
        ("horizon: 2.5\n", ["horizon", "integer"]),
        ("sort: perhaps\n", ["sort", "true or false"]),
        ("epsilon: 0\n", ["epsilon", "positive", "0"]),
    ],
)
def test_a_bad_configuration_file(text: str, said: list[str], folder: Path) -> None:
    config = folder / "agents.yaml"
    config.write_text(text)
    before = files(folder)
    typed = options(folder, epsilon=None if "epsilon" in text else 1)
    for command in ("run", "explain"):
        ran = asks(command, "agents", "--config", str(config), *arguments(typed))
        for part in said:
            assert part in ran.message
    assert files(folder) == before


def test_a_configuration_file_that_cannot_be_read(folder: Path) -> None:
    (folder / "latin.yaml").write_bytes(b"agent: \xff\n")
    for name, part in (("nowhere.yaml", "readable"), ("latin.yaml", "YAML")):
        message = asks("explain", "agents", "--config", str(folder / name)).message
        assert message.startswith("config must ")
        assert name in message
        assert part in message


def test_a_configuration_file_is_the_same_as_its_options(folder: Path) -> None:
    """Numbers, texts, flags, hyphens and underscores; and 1e-6, which YAML takes for a text."""
    extra = {
        "schedule": "every:6h",
        "max_agents": 9,
        "horizon": 9,
        "sort": False,
        "dead_letters": "d.jsonl",
    }
    with (folder / "flights.csv").open("a") as file:
        file.write("no record\n")
    named = {**options(folder, delta="1e-6"), **extra}
    config = folder / "agents.yaml"
    config.write_text(
        "".join(f"{name.replace('_b', '-b')}: {value}\n" for name, value in named.items())
    )
    outputs = []
    for way in ("typed", "file"):
        place = {key: folder / f"{way}-{key}.jsonl" for key in ("sink", "releases", "dead_letters")}
        place["store"] = folder / f"{way}.db"
        given = (
            {k: v for k, v in named.items() if k != "sort"}
            if way == "typed"
            else {"config": config}
        )
        typed = [
            *arguments({**given, **place, "quiet": True}),
            *(["--no-sort"] if way == "typed" else []),
        ]
        assert (
            meanstream("run", "agents", *typed, environment={"MEANSTREAM_SECRET": SECRET}).code == 0
        )
        outputs.append([place[key].read_bytes() for key in ("sink", "releases", "dead_letters")])
    assert outputs[0] == outputs[1]
    assert all(outputs[0])


def test_the_command_line_wins_over_the_file(folder: Path) -> None:
    config = folder / "agents.yaml"
    config.write_text("lower: 0\nupper: 1\nepsilon: 0.5\ndelta: 1e-6\nmode: paper\n")
    facts = asks("explain", "agents", "--config", str(config), "--epsilon", "0.25", "--json").json
    assert (facts["total"]["epsilon"], facts["total"]["delta"], facts["mode"]) == (
        0.25,
        1e-6,
        "paper",
    )
    facts = asks("explain", "agents", "--mode", "tuned", "--config", str(config), "--json").json
    assert (facts["total"]["epsilon"], facts["mode"]) == (0.5, "tuned")


# -- the store ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"epsilon": 2}, ["epsilon", "must be 1.0", "got 2"]),
        ({"upper": 100}, ["upper", "must be 120.0", "got 100"]),
        ({"horizon": 100}, ["horizon", "must be 40", "got 100"]),
        ({"mode": "paper"}, ["calibration", "analytic", "classical"]),
    ],
)
def test_a_store_made_with_other_settings(
    change: dict[str, Any], said: list[str], folder: Path
) -> None:
    assert run_agents(folder).code == 0
    before = files(folder)
    ran = run_agents(folder, population=folder / "new.jsonl", **change)
    for part in said:
        assert part in ran.message
    assert files(folder) == before


def test_a_store_that_another_process_uses(folder: Path) -> None:
    assert run_agents(folder).code == 0
    before = files(folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Store, "require_same", lambda *_: None)
        other = Store.open(folder / "state.db", settings={}, secret=b"")
    try:
        ran = run_agents(folder, population=folder / "new.jsonl")
    finally:
        other.close()
    assert "store must be used by one process" in ran.message
    assert "state.db" in ran.message
    assert {k: v for k, v in files(folder).items() if "-wal" not in k and "-shm" not in k} == before


def test_another_secret(folder: Path) -> None:
    assert run_agents(folder).code == 0
    before = files(folder)
    typed = arguments(options(folder, population=folder / "new.jsonl"))
    for secret, said in ((SECRET[::-1], "secret must be the one"), ("short", "got 5 bytes")):
        ran = meanstream("run", "agents", *typed, environment={"MEANSTREAM_SECRET": secret})
        assert said in ran.message
        assert secret not in ran.message
        assert files(folder) == before


def test_a_store_without_its_secret_or_that_is_no_store(folder: Path) -> None:
    assert run_agents(folder).code == 0
    (folder / "text.db").write_text("not a database, but long enough to be looked at " * 40)
    before = files(folder)
    message = meanstream("run", "agents", *arguments(options(folder))).message
    assert message.startswith("secret must be in a readable file")
    assert (
        "store must be a Meanstream store" in run_agents(folder, store=folder / "text.db").message
    )
    assert files(folder) == before


@pytest.mark.parametrize("option", ["store", "sink", "source", "releases", "secret_file"])
@pytest.mark.parametrize("length", [300, 5000])
def test_a_name_that_no_system_takes_is_one_line(option: str, length: int, folder: Path) -> None:
    before = files(folder)
    assert option in run_agents(folder, **{option: folder / ("a" * length + ".jsonl")}).message
    assert files(folder) == before


UNSET = ("help", "help_all", "version")


def typed_twice(command: Any, words: tuple[str, ...] = ()) -> Iterator[tuple[str, list[str]]]:
    """Of every command, each kind of option typed twice: its name, and the words."""
    kinds = {}
    for one in command.params:
        if (
            one.param_type_name == "option"
            and not one.multiple
            and not one.hidden
            and one.name not in UNSET
        ):
            kinds[
                getattr(one, "is_flag", False), bool(one.secondary_opts), one.name == "config"
            ] = one
    for (flag, *_), one in kinds.items():
        first, last = one.opts[0], (one.secondary_opts or one.opts)[-1]
        more = ["0"] * (one.nargs - 1)
        typed = [first, last] if flag else [first, "0", *more, f"{last}=1", *more]
        yield first.lstrip("-").replace("-", "_"), [*words, *typed]
    for name, part in getattr(command, "commands", {}).items():
        yield from typed_twice(part, (*words, name))


def test_every_option_is_typed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Which of two is meant is unknown: the last one used to be taken without a word."""
    monkeypatch.chdir(tmp_path)
    commands = list(typed_twice(with_environment_and_headings(typer.main.get_command(app))))
    assert len(commands) > 60
    for name, typed in commands:
        ran = meanstream(*typed)
        assert ran.message.startswith(f"{name} must be given once, got it 2 times, at last "), typed
    assert list(tmp_path.iterdir()) == []


def test_an_option_of_several_values_is_typed_several_times(folder: Path) -> None:
    (folder / "flights.csv").write_text("tailnum,dep_delay,time_hour\na,x,1\na,1,x\n,1,1\n")
    assert run_agents(folder, dead_letters=folder / "d.jsonl").code == 0
    asked = ("--reason", "bad_value", "--reason", "bad_time")
    shown = meanstream("dlq", "show", "--dead-letters", str(folder / "d.jsonl"), *asked, "--json")
    assert shown.json["records"] == 2
    assert meanstream("--help", "--help").code == 0


def test_a_device_without_an_end_is_read_to_a_bound(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(result, "MOST_BYTES", 1 << 20)
    named = {"MEANSTREAM_SECRET_FILE": "/dev/zero"}
    store = [
        "--store",
        str(tmp_path / "s.db"),
        "--lower",
        "0",
        "--upper",
        "1",
        "--epsilon",
        "1",
        "--delta",
        "1e-6",
    ]
    write_samples(tmp_path / "flights.csv")
    columns = [
        "--agent",
        "tailnum",
        "--value",
        "dep_delay",
        "--time",
        "time_hour",
        "--sink",
        str(tmp_path / "e.jsonl"),
    ]
    run = ["run", "agents", "--source", str(tmp_path / "flights.csv"), *columns, *store]
    said = {
        "config must be YAML, got '/dev/zero'": meanstream(
            "run", "agents", "--config", "/dev/zero"
        ),
        "secret must be at most 1048576 bytes, got more in '/dev/zero'": meanstream(
            *run, environment=named
        ),
        "result must be at most 1048576 bytes, got more in '/dev/zero'": meanstream(
            "report", str(tmp_path / "x.html"), "--result", "/dev/zero"
        ),
        "trace must be a readable .npz file of numbers, got '/dev/null'": meanstream(
            "simulate", "agents", "--trace", "/dev/null"
        ),
    }
    for line, ran in said.items():
        assert ran.message == line
    assert [path.name for path in tmp_path.iterdir()] == ["flights.csv"]


@pytest.mark.parametrize("damage", ["torn", "crc", "method", "nested", "text"])
def test_a_damaged_trace_or_result_is_one_line(damage: str, tmp_path: Path) -> None:
    place = tmp_path / "x.npz"
    np.savez_compressed(place, data=np.arange(999.0).reshape(333, 3), noise=np.zeros((333, 3)))
    data = bytearray(place.read_bytes())
    if damage == "torn":
        data = data[: len(data) // 2]
    elif damage == "crc":
        data[200:260] = bytes(60)
    elif damage == "method":
        at = data.find(b"PK\x01\x02")
        data[8], data[at + 10] = 99, 99
    else:
        data = bytearray(b"[" * 100_000 if damage == "nested" else b"9" * 5000)
    place.write_bytes(bytes(data))
    said = meanstream("simulate", "agents", "--trace", str(place)).message
    assert said == f"trace must be a readable .npz file of numbers, got '{place}'"
    assert (
        "result must be "
        in meanstream("report", str(tmp_path / "x.html"), "--result", str(place)).message
    )


def test_a_key_that_is_refused_is_one_line_whoever_may_read_it(folder: Path) -> None:
    (folder / "key").write_text("a phrase that somebody thought of")
    (folder / "key").chmod(0o644)
    named = {"MEANSTREAM_SECRET_FILE": str(folder / "key")}
    ran = meanstream("run", "agents", *arguments(options(folder, quiet=True)), environment=named)
    assert "secret must be 128 random bits or more" in ran.message
    (folder / "key").write_text(SECRET)
    ran = meanstream("run", "agents", *arguments(options(folder, quiet=True)), environment=named)
    (line,) = ran.err.decode().splitlines()
    assert (ran.code, line.partition(" warning ")[2]) == (
        0,
        f"meanstream.secret: secret can be read by others than its owner file={folder / 'key'} mode=0644",
    )
