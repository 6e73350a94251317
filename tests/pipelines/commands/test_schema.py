"""`meanstream schema NAME` describes what is written: every event type, against lines that a run
emits."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator

from meanstream.operators.agents.agents import AgentsSettings
from meanstream.pipelines.commands.init_command import KINDS
from meanstream.streaming.agents.agents_releases import release_refusal_lines
from meanstream.streaming.events.times import time_as_datetime
from meanstream.streaming.events.wire import EVENTS, Sample
from meanstream.streaming.store.spend_ledger import LedgerRows
from tests.pipelines.command_line import meanstream, run_agents, write_samples
from tests.pipelines.commands.run.test_run_rounds import run as run_rounds
from tests.streaming.agents.test_drift import SETTINGS as OF_DRIFT
from tests.streaming.agents.test_drift import stream as stream_with_change
from tests.streaming.support.stored_rows import stored_rows

FILES = {
    "release": "releases",
    "estimate": "sink",
    "population": "population",
    "dead_letter": "dead_letters",
    "budget": "notices",
}


@pytest.fixture(scope="module")
def emitted(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[bytes]]:
    """Lines of every event type: from a run of agents with bad records and a short horizon and one of rounds with a
    small budget; two that a run cannot make.
    """
    folder = tmp_path_factory.mktemp("emitted")
    source = write_samples(folder / "flights.csv", rows=90)
    with source.open("a") as file:
        file.write("N1,nan,2013-01-09T00:00:00Z,x\nN1,1\nN1,x,2013-01-09T00:00:00Z,x\n")
    place = {role: folder / f"{role}.jsonl" for role in FILES.values()}
    assert run_agents(folder, horizon=3, id="flight", **place).code == 0
    lines = {name: place[role].read_bytes().splitlines() for name, role in FILES.items()}
    rows = LedgerRows(agent=[0], release_index=[1], input_version=[7], time=[0.0], output=[b"{}"])
    lines["refusal"] = list(
        release_refusal_lines(
            rows, [0], ["a"], AgentsSettings(lower=0, upper=1, epsilon=1, delta=1e-6)
        ).lines
    )
    lines |= emitted_by_rounds(folder)
    lines["drift"] = emitted_drifts(folder)
    lines["pair_release"] = emitted_pairs(folder)
    lines["sample"] = [
        Sample(agent="a", value=1.5, time=time_as_datetime(0.0), id="s1").model_dump_json().encode()
    ]
    return lines


def emitted_pairs(folder: Path) -> list[bytes]:
    """Run agents that query each other: what one gets of another is in the ledger and nowhere
    else."""
    store = folder / "pairs.db"
    changes = {
        "schedule": "round_robin",
        "releases": None,
        "sink": folder / "pairs.jsonl",
        "store": store,
    }
    assert run_agents(folder, **changes).code == 0
    return [row[-2] for row in stored_rows(store)]


def emitted_drifts(folder: Path) -> list[bytes]:
    """Run two agents with a memory, of whom one changes."""
    rows = [
        f"{name},{value},{time_as_datetime(time).isoformat()}"
        for name, value, time in stream_with_change()
    ]
    other = folder / "moving"
    other.mkdir()
    source, notices = other / "flights.csv", other / "notices.jsonl"
    source.write_text("\n".join(["tailnum,dep_delay,time_hour", *rows]) + "\n")
    same = {
        name: getattr(OF_DRIFT, name)
        for name in ("lower", "upper", "epsilon", "delta", "memory", "schedule")
    }
    assert run_agents(other, notices=notices, **same).code == 0
    return [line for line in notices.read_bytes().splitlines() if b'"found"' in line]


def emitted_by_rounds(folder: Path) -> dict[str, list[bytes]]:
    """Run rounds by day, of two stages, where users can pay for one day of four."""
    place = {
        role: folder / f"rounds-{role}.jsonl"
        for role in ("sink", "reports", "stages", "notices", "dead_letters")
    }
    more = {
        "sizes": "point:1000",
        "option": "effective_size=1000",
        "user_budget": 1,
        "store": folder / "rounds.db",
    }
    assert run_rounds(folder, window="1d", estimator="dame", **place, **more).code == 0
    lines = {role: path.read_bytes().splitlines() for role, path in place.items()}
    charges = {
        "reports": folder / "charges.jsonl",
        "sink": folder / "curated.jsonl",
        "store": folder / "curator.db",
    }
    assert run_rounds(folder, estimator="cummings.ratio", **charges).code == 0
    return {
        "charge": charges["reports"].read_bytes().splitlines(),
        "report": [line for line in lines["reports"] if b'"payload"' in line],
        "stage_reports": [line for line in lines["reports"] if b'"payload"' not in line],
        "stage_result": lines["stages"],
        "window_estimate": lines["sink"],
        "round_refusal": lines["notices"],
        "private_dead_letter": lines["dead_letters"],
    }


RARE = {
    "window_estimate": {
        "values",
        "categories",
        "quantiles",
        "components",
        "function",
        "user_windows",
    },  # of several numbers, or of windows that share a budget
    "charge": {"user_windows", "window_number"},
    "estimate": {
        "population_time",
        "coverage",
        "quantiles",
        "exceeds",
        "moved_by_covariates",
        "members",
    },  # if overtaken, or asked for
    "pair_release": {"variance"},
    "release": {"histogram"},  # where they are asked for
    "population": {"overtaken"},
}


@pytest.mark.parametrize("name", sorted(EVENTS))
def test_emitted_lines_match_the_schema(name: str, emitted: dict[str, list[bytes]]) -> None:
    """The strict closed model is what the schema is made from; names, required and closed are
    checked on it too."""
    schema: dict[str, Any] = meanstream("schema", name).json
    assert schema["additionalProperties"] is False
    assert emitted[name]
    for line in emitted[name]:
        EVENTS[name].model_validate_json(line, strict=True)
        event = json.loads(line)
        # The lines have none of the fields that are rarely there, and the same bytes as before
        # there were any.
        optional = RARE.get(name, set())
        assert list(event) == [field for field in schema["properties"] if field not in optional]
        assert set(schema["required"]) <= set(event)
        assert event["schema_version"] == schema["properties"]["schema_version"]["const"]


def test_a_personal_estimate_has_what_was_promised() -> None:
    promised = {
        "agent",
        "time",
        "n",
        "value",
        "interval",
        "level",
        "local",
        "epsilon",
        "delta",
        "mode",
        "schema_version",
    }
    assert promised <= set(meanstream("schema", "estimate").json["properties"])


@pytest.mark.parametrize("name", sorted(EVENTS))
def test_a_line_with_another_field_is_no_event(name: str, emitted: dict[str, list[bytes]]) -> None:
    spoiled = {**json.loads(emitted[name][0]), "raw_value": 1.0}
    with pytest.raises(ValueError, match="raw_value"):
        EVENTS[name].model_validate_json(json.dumps(spoiled), strict=True)


def test_every_property_is_described_or_speaks_for_itself() -> None:
    plain = {"agent", "time", "level", "epsilon", "delta", "mode", "schema_version", "method"}
    plain |= {"reason", "release_id", "spent", "asked", "remaining", "horizon"}
    for name in EVENTS:
        for field, facts in meanstream("schema", name).json["properties"].items():
            assert field in plain or facts.get("description"), (name, field)


def test_an_unknown_event_names_the_known_ones() -> None:
    message = meanstream("schema", "releases").message
    assert message == f"name must be one of {', '.join(sorted(EVENTS))}, got 'releases'"


@pytest.mark.parametrize("kind", KINDS)
def test_a_file_of_options_is_as_its_schema_says(kind: str) -> None:
    schema = meanstream("schema", f"run-{kind}").json
    check = Draft202012Validator(schema)
    text = meanstream("run", kind, "--print-config", "--quiet").out.decode()
    everything = yaml.safe_load(text)
    assert everything["quiet"] is True
    assert list(check.iter_errors(everything)) == []
    assert {line.split(":")[0].lstrip("# ") for line in text.splitlines() if "  # " in line} == set(
        schema["properties"]
    )
    for wrong in (
        {"epsilom": 1},
        {"quiet": "yes"},
        {"level": "high"} if kind != "agent-side" else {"horizon": "many"},
    ):
        assert not check.is_valid(wrong), wrong
    assert (
        "name must be one of a file of options, got" in meanstream("schema", "run-nothing").message
    )
