"""What a store belongs to: its public releases, and the source that it is filled from.

A store that is lost, or put back as an older copy, does not begin anew beside what it has released;
another topic, file or column is refused until somebody says, on record, that it is the same data.
"""

from __future__ import annotations

import json
import shlex
import shutil
from pathlib import Path
from typing import Any

import pytest

from meanstream.streaming.open_sink import FILES
from tests.pipelines.command_line import SECRET, Ran, arguments, meanstream, options, write_samples

HEADER = "tailnum,dep_delay,time_hour,flight"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_samples(tmp_path / "flights.csv", agents=5, rows=200)
    return tmp_path


def run(folder: Path, *more: str, key: str | None = SECRET, **changes: Any) -> Ran:
    typed = arguments(options(folder, **{"quiet": True, "name": None, **changes}))
    return meanstream(
        "run",
        "agents",
        *typed,
        *more,
        environment={} if key is None else {"MEANSTREAM_SECRET": key},
    )


def rounds(folder: Path, **changes: Any) -> Ran:
    named = {
        "source": folder / "flights.csv", "user": "tailnum", "value": "dep_delay", "time": "time_hour", "lower": -30,
        "upper": 120, "epsilon": 1, "window": "7d", "estimator": "one_shot", "store": folder / "rounds.db",
        "sink": folder / "means.jsonl", "reports": folder / "reports.jsonl", "quiet": True, **changes,
    }  # fmt: skip
    typed = arguments({name: value for name, value in named.items() if value is not None})
    return meanstream("run", "rounds", *typed, environment={"MEANSTREAM_SECRET": SECRET})


def lose(store: Path) -> None:
    for path in store.parent.glob(f"{store.name}*"):
        path.unlink()


def contents(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def ids(path: Path) -> list[str]:
    return [json.loads(line)["release_id"] for line in path.read_bytes().splitlines()]


def test_a_name_is_made_and_kept_and_stands_in_every_id(folder: Path) -> None:
    assert run(folder).code == 0
    shown = meanstream("store", "show", "--store", str(folder / "state.db"), "--json").json
    assert {one.partition("/")[0] for one in ids(folder / "releases.jsonl")} == {shown["name"]}
    backup = meanstream(
        "ledger", "backup", "--store", str(folder / "state.db"), "--to", str(folder / "b.db")
    )
    assert backup.code == 0
    assert meanstream("store", "show", "--store", str(folder / "b.db"), "--json").json == shown
    assert run(folder, name="another").message.startswith(
        f"name must be {shown['name']!r} as in the store"
    )
    assert run(folder).code == 0


def test_a_lost_store_is_not_begun_anew_beside_its_releases(folder: Path) -> None:
    assert run(folder, name="delays").code == 0
    before = (folder / "releases.jsonl").read_bytes()
    lose(folder / "state.db")
    for name in ("delays", None):
        ran = run(folder, name=name)
        assert (ran.code, ran.message[:59]) == (
            2,
            "releases must hold nothing that this store has not charged,",
        )
        assert (folder / "releases.jsonl").read_bytes() == before


@pytest.mark.parametrize("key", [SECRET, None], ids=["named key", "key beside the store"])
def test_a_refused_start_leaves_no_store_and_what_never_released_is_no_older_copy(
    key: str | None, folder: Path
) -> None:
    """Otherwise the refusal makes the way round itself: a store that is seconds old, to be adopted
    as an older copy."""
    assert run(folder, key=key).code == 0
    before = {
        path: data
        for path, data in contents(folder).items()
        if not path.name.startswith("state.db")
    }
    lose(folder / "state.db")
    assert run(folder, key=key).code == 2
    assert contents(folder) == before
    place = ["--store", str(folder / "state.db")]
    assert meanstream("store", "adopt", *place, "--older-copy").message.startswith(
        "store must be an existing file"
    )
    # One that read, and never released anything, is no older copy either.
    assert (
        run(
            folder,
            "--no-final-release",
            key=key,
            schedule="geometric:1000,2",
            releases=None,
            sink="-",
        ).code
        == 0
    )
    adopted = meanstream("store", "adopt", *place, "--older-copy")
    assert adopted.message.startswith(
        "store must have released something to be an older copy, got a new one in "
    )
    assert meanstream("store", "show", *place, "--json").json["adopted"] == []


def test_a_refused_start_leaves_the_lock_file_as_it_was(folder: Path) -> None:
    assert run(folder).code == 0
    lock = folder / "state.db.lock"
    before = lock.read_bytes().splitlines()[1]
    (folder / "state.db").unlink()
    assert run(folder).code == 2
    assert not (folder / "state.db").exists()
    assert lock.read_bytes().splitlines()[1] == before, (
        "it would know an older copy that is put back"
    )


ANSWERS = {
    "estimates": {"releases": None},
    "estimates in Parquet": {"releases": None, "sink": "estimates.parquet"},
    "population": {"releases": None, "sink": "-", "population": "population.jsonl"},
    "population in Parquet": {"releases": None, "sink": "-", "population": "population.parquet"},
    "means": {"reports": None},
    "means in Parquet": {"reports": None, "sink": "means.parquet"},
    "means of a curator": {"reports": None, "estimator": "cummings.ratio"},
    "stages": {
        "reports": None,
        "sink": "-",
        "stages": "stages.jsonl",
        "estimator": "kent",
        "sizes": "poisson:5",
    },
}


def answering(case: str, folder: Path, **changes: Any) -> Ran:
    """Run a deployment of which nothing but answers goes anywhere."""
    host = run if "releases" in ANSWERS[case] else rounds
    options = {
        name: folder / x if Path(str(x)).suffix in FILES else x for name, x in ANSWERS[case].items()
    }
    return host(folder, **{**options, **changes})


@pytest.mark.parametrize("case", ANSWERS)
def test_a_lost_store_is_not_begun_anew_beside_its_answers(case: str, folder: Path) -> None:
    """Answers of a second set of releases or reports are a second release, whether or not these go
    anywhere."""
    made = {name + end for name in ("state.db", "rounds.db") for end in ("", ".lock")}
    note = b'{"note":"of somebody else"}\n{"round":1}\n\xff\n'
    place = folder / str(
        ANSWERS[case].get("population") or ANSWERS[case].get("stages") or "estimates.jsonl"
    )
    if place.suffix == ".jsonl" and not case.startswith("means"):
        place.write_bytes(note)
    assert answering(case, folder).code == 0
    before = {path: data for path, data in contents(folder).items() if path.name not in made}
    assert any(
        path.suffix in (".jsonl", ".parquet") and len(data) > len(note)
        for path, data in before.items()
    )
    assert answering(case, folder).code == 0, "the store itself goes on"
    for store in ("state.db", "rounds.db"):
        lose(folder / store)
    for name in (None, "another"):
        ran = answering(case, folder, name=name)
        assert ran.code == 2, ran.err
        assert (
            " must hold nothing that this store has not charged, got other events in "
            in ran.err.decode()
        )
        assert contents(folder) == before


@pytest.mark.parametrize(
    "case", ["estimates", "estimates in Parquet", "population", "means", "means in Parquet"]
)
def test_an_older_copy_is_not_continued_beside_newer_answers(case: str, folder: Path) -> None:
    lines = (folder / "flights.csv").read_text().splitlines()
    more = {"sort": False} | (
        {"final_release": False} if "releases" in ANSWERS[case] else {"window": "1d"}
    )

    def go_on(*rows: str) -> Ran:
        (folder / "flights.csv").write_text("\n".join([lines[0], *rows]) + "\n")
        return answering(case, folder, **more)

    assert go_on(*lines[1:100]).code == 0
    stores = [path for path in folder.iterdir() if path.name.startswith(("state.db", "rounds.db"))]
    kept = {path: path.read_bytes() for path in stores}
    assert go_on(*lines[1:]).code == 0
    before = {path: data for path, data in contents(folder).items() if path not in kept}
    assert go_on(*lines[1:]).code == 0
    assert before.items() <= contents(folder).items()
    for path, data in kept.items():
        path.write_bytes(data)
    ran = go_on(*lines[1:])
    assert ran.code == 2, ran.err
    assert (
        " must hold nothing that this store has not charged, got other events in "
        in ran.err.decode()
    )
    assert before.items() <= contents(folder).items()
    store = next(path for path in kept if path.suffix == ".db")
    assert meanstream("store", "adopt", "--store", str(store), "--older-copy").code == 0
    assert go_on(*lines[1:]).code == 0


def test_an_older_copy_is_not_continued_beside_newer_releases(folder: Path) -> None:
    """The copy is put back together with its lock file, which would have told."""
    lines = (folder / "flights.csv").read_text().splitlines()
    (folder / "flights.csv").write_text("\n".join(lines[:100]) + "\n")
    assert run(folder, "--no-sort", "--no-final-release").code == 0
    for path in list(folder.glob("state.db*")):
        shutil.copy(path, folder / path.name.replace("state", "old"))
    (folder / "flights.csv").write_text("\n".join(lines) + "\n")
    assert run(folder, "--no-sort", "--no-final-release").code == 0
    before = (folder / "releases.jsonl").read_bytes()
    for path in list(folder.glob("old.db*")):
        shutil.copy(path, folder / path.name.replace("old", "state"))
    # The same input would give the same releases; another one, other values under the same ids.
    (folder / "flights.csv").write_text("\n".join([*lines[:100], *lines[:99:-1]]) + "\n")
    ran = run(folder, "--no-sort", "--no-final-release")
    assert (ran.code, ran.message[:59]) == (
        2,
        "releases must hold nothing that this store has not charged,",
    )
    assert (folder / "releases.jsonl").read_bytes() == before
    # With the input that it had read from, whoever says so on record may go on: the same bytes come
    # again.
    (folder / "flights.csv").write_text("\n".join(lines) + "\n")
    assert (
        meanstream("store", "adopt", "--store", str(folder / "state.db"), "--older-copy").code == 0
    )
    assert run(folder, "--no-sort", "--no-final-release").code == 0
    assert (folder / "releases.jsonl").read_bytes() == before


def test_a_lost_store_of_rounds_is_not_begun_anew_beside_its_reports(folder: Path) -> None:
    assert rounds(folder).code == 0
    before = (folder / "reports.jsonl").read_bytes()
    assert rounds(folder).code == 0
    lose(folder / "rounds.db")
    ran = rounds(folder)
    assert (ran.code, ran.message[:58]) == (
        2,
        "reports must hold nothing that this store has not charged,",
    )
    assert (folder / "reports.jsonl").read_bytes() == before


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"source": "others.csv"},
            "source must be 'flights.csv' as in the store that is continued, got 'others.csv'",
        ),
        (
            {"value": "flight"},
            "value must be 'dep_delay' as in the store that is continued, got 'flight'",
        ),
        (
            {"agent": "flight"},
            "agent must be 'tailnum' as in the store that is continued, got 'flight'",
        ),
        ({"id": "flight"}, "id must be None as in the store that is continued, got 'flight'"),
        ({"lateness": "2h"}, "lateness must be 0s as in the store that is continued, got 2h"),
    ],
)
def test_another_source_is_refused_and_nothing_is_changed(
    changes: dict[str, str], message: str, folder: Path
) -> None:
    assert run(folder).code == 0
    shutil.copy(folder / "flights.csv", folder / "others.csv")
    before = (folder / "releases.jsonl").read_bytes(), (folder / "estimates.jsonl").read_bytes()
    if "source" in changes:
        changes = {"source": str(folder / "others.csv")}
    ran = run(folder, **changes)
    assert ran.code == 2
    assert ran.message.startswith(message)
    assert (
        (folder / "releases.jsonl").read_bytes(),
        (folder / "estimates.jsonl").read_bytes(),
    ) == before
    _, _, command = ran.message.partition(": meanstream ")
    assert meanstream(*shlex.split(command)).code == 0, "ready to copy"
    assert run(folder, **{**changes, "dry_run": True}).code == 0, "it does what was refused"


def test_rounds_refuse_another_source_too(folder: Path) -> None:
    assert rounds(folder).code == 0
    assert rounds(folder, value="flight").message.startswith(
        "value must be 'dep_delay' as in the store"
    )
    assert rounds(folder, user="flight").message.startswith(
        "user must be 'tailnum' as in the store"
    )


def test_the_same_data_under_another_name_are_adopted_on_record(folder: Path) -> None:
    assert run(folder).code == 0
    lines = (folder / "flights.csv").read_text().splitlines()
    original = (folder / "flights.csv").read_bytes()
    renamed = [HEADER.replace("dep_delay", "delay"), *lines[1:]]
    (folder / "flights.csv").write_text("\n".join(renamed) + "\n")
    assert run(folder, value="delay").code == 2
    place = ["--store", str(folder / "state.db")]
    record = meanstream(
        "store", "adopt", *place, "--value", "delay", "--lateness", "2h", "--json"
    ).json
    assert (record["from"], record["to"]) == (
        {"value": "dep_delay", "lateness": 0.0},
        {"value": "delay", "lateness": 7200.0},
    )
    edited = run(folder, value="delay", lateness="2h")
    assert edited.message.startswith("source must be the file that this store was filled from")
    assert meanstream("store", "show", *place, "--json").json["adopted"] == [record]
    (folder / "flights.csv").write_bytes(original)
    (folder / "february.csv").write_bytes(original)
    back = ("--value", "dep_delay", "--source", str(folder / "february.csv"))
    assert meanstream("store", "adopt", *place, *back).code == 0
    for source in ("february.csv", "flights.csv", "february.csv"):
        assert run(folder, source=folder / source, lateness="2h").code == 0
    again = meanstream("store", "adopt", *place, "--value", "dep_delay")
    assert (again.code, again.message[:54]) == (
        2,
        "store must be given something else than it has, got {'",
    )
    nothing = meanstream("store", "adopt", *place)
    assert (nothing.code, nothing.message) == (
        2,
        "store adopt must be given what changes, or --older-copy, got none",
    )
    user = meanstream("store", "adopt", *place, "--user", "tailnum")
    assert user.message.startswith(
        "user must be left out for a store whose options are source, cluster, agent,"
    )
