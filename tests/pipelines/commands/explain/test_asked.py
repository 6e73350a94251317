"""Commands about a run take its file or its store: what they say is the same, and nothing else is
typed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.pipelines.command_line import SECRET, meanstream, options, write_samples
from tests.pipelines.commands.run.test_run_rounds import options as options_of_rounds
from tests.pipelines.commands.run.test_run_rounds import run as run_rounds
from tests.pipelines.commands.run.test_run_rounds import write_flights

BOUNDS = ("--lower", "-30", "--upper", "120", "--epsilon", "1", "--delta", "1e-6")
KEY = {"MEANSTREAM_SECRET": SECRET}
PLANNED = ("--agents", "300", "--sizes", "point:40", "--spread", "6", "--json")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run by a file of options, with a record whose column of the value is another one."""
    folder = tmp_path_factory.mktemp("run")
    source = write_samples(folder / "flights.csv")
    source.write_text(source.read_text() + "N1,late,2013-01-02T00:00:00Z,F99\n")
    named = {**options(folder), "memory": "half-life:40", "schedule": "preferred:4", "id": "flight"}
    named |= {"dead_letters": folder / "d.jsonl", "quiet": "true"}
    (folder / "run.yaml").write_text("".join(f"{name}: {value}\n" for name, value in named.items()))
    assert (
        meanstream("run", "agents", "--config", str(folder / "run.yaml"), environment=KEY).code == 0
    )
    return folder


@pytest.mark.parametrize(
    "words", [("explain", "agents", "--json"), ("plan", "agents", *PLANNED)], ids=" ".join
)
def test_a_file_and_a_store_of_agents_say_the_same(words: tuple[str, ...], folder: Path) -> None:
    of_file = meanstream(*words, "--config", str(folder / "run.yaml"))
    of_store = meanstream(*words, "--store", str(folder / "state.db"))
    assert of_file.json == of_store.json
    assert of_file.json != meanstream(*words, *BOUNDS).json


def test_a_topic_is_audited_by_a_file_and_by_a_store(folder: Path) -> None:
    topic = ("audit", "topic", str(folder / "releases.jsonl"), "--json")
    ways = (("--config", str(folder / "run.yaml")), ("--store", str(folder / "state.db")))
    found = [meanstream(*topic, *way).json["rows"] for way in ways]
    assert found[0] == found[1]
    assert not any(row["violated"] for row in found[0])
    gaussian = {"MEANSTREAM_NOISE": "gaussian"}
    assert (
        meanstream(*topic, *BOUNDS, environment=gaussian).code == 1
    )  # of another memory and another schedule


def test_a_replay_knows_the_columns_of_its_store(folder: Path) -> None:
    replay = (
        "dlq",
        "replay",
        "--source",
        str(folder / "flights.csv"),
        "--from",
        str(folder / "d.jsonl"),
        "--json",
    )
    places = ("--store", str(folder / "state.db"), "--sink", str(folder / "estimates.jsonl"))
    told = meanstream(*replay, *places, environment=KEY).json
    assert (told["dead_letters"], told["replayed"], told["rejected"]) == (1, 1, {"bad_value": 1})


def test_what_is_not_typed_has_a_place_and_a_store_of_another_kind_is_refused(
    folder: Path, tmp_path: Path
) -> None:
    said = meanstream("explain", "agents", "--counter", "pm1").message
    assert (
        said == "counter must come from --config here, or from MEANSTREAM_COUNTER, got '--counter'"
    )
    bounds = ("--lower", "0", "--upper", "1", "--epsilon", "1", "--delta", "1e-6", "--json")
    by_variable = meanstream(
        "explain", "agents", *bounds, environment={"MEANSTREAM_COUNTER": "pm1"}
    ).json
    assert by_variable["mechanism"]["counter"] == "pm1"
    for words in (("explain", "rounds"), ("plan", "rounds")):
        said = meanstream(*words, "--store", str(folder / "state.db")).message
        assert said.startswith(
            "store must be one of users in rounds or of a statistician in rounds, got "
        )
    assert (
        "config has no option"
        in meanstream("plan", "agents", "--config", str(_written(tmp_path, "sort_: 1"))).message
    )


def _written(folder: Path, text: str) -> Path:
    (folder / "x.yaml").write_text(text)
    return folder / "x.yaml"


def test_a_file_and_a_store_of_rounds_say_the_same(tmp_path: Path) -> None:
    write_flights(tmp_path / "flights.csv")
    assert run_rounds(tmp_path).code == 0
    named = options_of_rounds(tmp_path)
    config = _written(tmp_path, "".join(f"{name}: {value}\n" for name, value in named.items()))
    ways = ("--config", str(config)), ("--store", str(named["store"]))
    explained = [meanstream("explain", "rounds", "--json", *way).json for way in ways]
    assert explained[0] == explained[1]
    more = ("--users", "400", "--sizes", "point:9", "--json")
    planned = [meanstream("plan", *more, *way).json for way in ways]
    assert planned[0] == planned[1]
