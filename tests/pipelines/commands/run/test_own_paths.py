"""What is written is no file that is read, owned or written besides, by whatever name."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from meanstream.lab.demo.flights import MARK
from meanstream.pipelines.commands.command_outputs import take_output_folder
from tests.pipelines.command_line import (
    SECRET,
    arguments,
    files,
    meanstream,
    options,
    run_agents,
    write_samples,
)

KEY = {"MEANSTREAM_SECRET": SECRET}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A store, its key in a file, a source, releases of before and a file of options."""
    write_samples(tmp_path / "flights.csv")
    (tmp_path / "key.jsonl").write_text(SECRET)
    (tmp_path / "run.yaml").write_text("horizon: 40\n")
    assert run_agents(tmp_path, releases=None, sink=tmp_path / "old.jsonl").code == 0
    return tmp_path


def plain(path: Path) -> Path:
    return path


def linked(path: Path) -> Path:
    link = path.with_name("link.jsonl")
    link.symlink_to(path)
    return link


def hard_linked(path: Path) -> Path:
    link = path.with_name("hard.jsonl")
    os.link(path, link)
    return link


def respelled(path: Path) -> Path:
    return path.parent / ".." / path.parent.name / "." / path.name


SPELLINGS = [plain, linked, hard_linked, respelled]


@pytest.mark.parametrize("spelled", SPELLINGS)
@pytest.mark.parametrize(
    "victim", ["flights.csv", "state.db", "key.jsonl", "run.yaml", "state.db.lock"]
)
@pytest.mark.parametrize("role", ["sink", "releases", "dead_letters"])
def test_a_run_overwrites_nothing_of_its_own(
    role: str, victim: str, spelled: Callable[[Path], Path], folder: Path
) -> None:
    place = spelled(folder / victim)
    if place.suffix != ".jsonl":  # a sink's name says its form: by any other it is refused anyway
        place = linked(folder / victim)
    before = files(folder)
    named = options(
        folder, secret_file=folder / "key.jsonl", config=folder / "run.yaml", quiet=True
    )
    ran = meanstream("run", "agents", *arguments({**named, role: place}))
    assert f"{role} must be another place than" in ran.message
    assert files(folder) == before


def test_a_link_to_a_file_that_is_not_there_yet_is_that_file(folder: Path) -> None:
    (folder / "a.jsonl").symlink_to(folder / "b.jsonl")
    (folder / "w.jsonl").symlink_to(folder / "state.db-wal")
    before = files(folder)
    twice = run_agents(folder, releases=folder / "a.jsonl", sink=folder / "b.jsonl")
    assert "must be another place than" in twice.message
    log = run_agents(folder, releases=folder / "w.jsonl")
    assert "releases must be another place than the write-ahead log of the store" in log.message
    assert files(folder) == before


def test_a_folder_of_parts_holds_nothing_else(folder: Path) -> None:
    (folder / "parts.parquet").mkdir()
    (folder / "flights.csv").rename(folder / "parts.parquet" / "flights.csv")
    ran = run_agents(
        folder, source=folder / "parts.parquet" / "flights.csv", releases=folder / "parts.parquet"
    )
    assert "releases must be a folder without source" in ran.message


@pytest.mark.parametrize("spelled", SPELLINGS)
def test_a_report_leaves_its_store_alone(spelled: Callable[[Path], Path], folder: Path) -> None:
    before = files(folder)
    for victim in ("state.db", "state.db.lock"):
        place = spelled(folder / victim)
        assert (
            "out must be another place than"
            in meanstream("report", str(place), "--store", str(folder / "state.db")).message
        )
        if place.name.endswith(".jsonl"):
            place.unlink()
    assert files(folder) == before
    result = ("report", str(respelled(folder / "old.jsonl")), "--result", str(folder / "old.jsonl"))
    assert "out must be another place than result" in meanstream(*result).message


def test_new_files_are_not_put_where_a_store_looks_for_its_own(folder: Path) -> None:
    before = files(folder)
    log, store = str(folder / "state.db-wal"), str(folder / "state.db")
    assert (
        "must be another place than"
        in meanstream("ledger", "backup", "--store", store, "--to", log).message
    )
    assert "must be another place than" in meanstream("secret", "new", log).message
    other = str(folder / "other.db-wal")
    (folder / "other.db").touch()
    assert (
        "to must be another place than"
        in meanstream("ledger", "backup", "--store", store, "--to", other).message
    )
    (folder / "other.db").unlink()
    assert files(folder) == before


def test_both_sides_of_rounds_and_collaborate_check_too(folder: Path) -> None:
    before = files(folder)
    named = {
        "lower": -30,
        "upper": 120,
        "window": "7d",
        "epsilon": 1,
        "quiet": True,
        "store": folder / "rounds.db",
    }
    samples = {
        "source": folder / "flights.csv",
        "user": "tailnum",
        "value": "dep_delay",
        "time": "time_hour",
    }
    place = linked(folder / "flights.csv")
    for more in (samples | {"sink": place}, samples | {"notices": place}):
        ran = meanstream("run", "rounds", *arguments(named | more), environment=KEY)
        assert "must be another place than source" in ran.message
    place.unlink()
    both = hard_linked(folder / "old.jsonl")
    sides = named | {
        "name": "test",
        "from_reports": folder / "old.jsonl",
        "stages": folder / "stages.jsonl",
        "sink": both,
    }
    assert "must be another place than" in meanstream("run", "rounds", *arguments(sides)).message
    answered = {
        "releases": folder / "old.jsonl",
        "store": folder / "state.db",
        "sink": both,
        "until_end": True,
    }
    typed = [word for word in arguments(answered) if word != "--no-until-end"]
    assert "sink must be another place than" in meanstream("run", "collaborate", *typed).message
    both.unlink()
    assert files(folder) == before


@pytest.mark.parametrize("suffix", ["-wal", "-shm", "-journal", ".lock", ".secret"])
def test_no_output_lies_where_another_store_has_its_own(suffix: str, folder: Path) -> None:
    (folder / "other.db").write_bytes((folder / "state.db").read_bytes())
    place = folder / f"other.db{suffix}"
    (folder / "link.jsonl").symlink_to(place)
    (folder / "link.parquet").symlink_to(place)
    before = files(folder)
    for name in ("link.jsonl", "link.parquet"):
        assert (
            "sink must be another place than the " in run_agents(folder, sink=folder / name).message
        )
    assert "store must be another place than the " in run_agents(folder, store=place).message
    for out in (place, folder / "link.jsonl"):
        assert (
            "out must be another place than the "
            in meanstream("report", str(out), "--store", state(folder)).message
        )
    assert "file must be another place than the " in meanstream("secret", "new", str(place)).message
    assert files(folder) == before
    assert not place.exists()


def state(folder: Path) -> str:
    return str(folder / "state.db")


@pytest.mark.parametrize("spelled", SPELLINGS)
def test_the_file_of_the_secret_that_the_environment_names_is_no_output(
    spelled: Callable[[Path], Path], folder: Path
) -> None:
    place, before = spelled(folder / "key.jsonl"), files(folder)
    named = {"MEANSTREAM_SECRET_FILE": str(folder / "key.jsonl")}
    report = meanstream("report", str(place), "--store", state(folder), environment=named)
    assert report.message == f"out must be another place than the secret, got '{place}'"
    for more in ({}, {"secret_file": folder / "run.yaml"}, {"dry_run": True}):
        typed = arguments(options(folder, quiet=True, sink=place, **more))
        ran = meanstream("run", "agents", *typed, environment=named)
        assert ran.message == f"sink must be another place than the secret, got '{place}'"
    assert files(folder) == before


def test_a_sink_leaves_the_key_of_another_store_alone_by_a_hard_link(folder: Path) -> None:
    (folder / "other.db.secret").write_text(SECRET)
    os.link(folder / "other.db.secret", folder / "x.jsonl")
    before = files(folder)
    for role in ("sink", "releases", "dead_letters", "notices", "population"):
        assert (
            f"{role} must be a new file or one of events"
            in run_agents(folder, **{role: folder / "x.jsonl"}).message
        )
    assert files(folder) == before


def test_private_figures_are_no_other_output(folder: Path) -> None:
    (folder / "link.jsonl").symlink_to(folder / "figures.json")
    before = files(folder)
    ran = run_agents(folder, sink=folder / "link.jsonl", private_figures=folder / "figures.json")
    assert "private_figures must be another place than sink" in ran.message
    assert files(folder) == before


def test_the_file_that_a_topic_is_configured_by_is_no_output(folder: Path) -> None:
    (folder / "client.jsonl").write_text("{}\n")
    topic = f"kafka://127.0.0.1:1/releases?config={folder / 'client.jsonl'}"
    before = files(folder)
    ran = run_agents(folder, releases=topic, dead_letters=folder / "client.jsonl")
    assert "dead_letters must be another place than the file of releases" in ran.message
    assert files(folder) == before


@pytest.mark.parametrize("prefix", ["file:", ""], ids=["file:", "a path of librdkafka"])
def test_what_a_topics_file_names_is_no_output(prefix: str, folder: Path) -> None:
    """A password by `file:`, relative to the file of properties; a certificate as librdkafka takes
    it."""
    (folder / "password.jsonl").write_text("hush\n")
    name = "sasl.password" if prefix else "ssl.ca.location"
    place = "file:password.jsonl" if prefix else folder / "password.jsonl"
    (folder / "client.yaml").write_text(f"{name}: {place}\n")
    topic = f"kafka://127.0.0.1:1/releases?config={folder / 'client.yaml'}"
    before = files(folder)
    for victim in ("password.jsonl", "hard.jsonl"):
        ran = run_agents(folder, releases=topic, dead_letters=folder / victim)
        assert f"dead_letters must be another place than the {name} of releases" in ran.message
        assert files(folder) == before
        (folder / "hard.jsonl").unlink(missing_ok=True)
        os.link(folder / "password.jsonl", folder / "hard.jsonl")
        before = files(folder)


def test_a_lock_file_of_somebody_else_is_left_alone(folder: Path) -> None:
    for content in (b"# packages, pinned\n", SECRET.encode()):
        (folder / "new.lock").write_bytes(content)
        ran = run_agents(folder, store=folder / "new", sink=folder / "new.jsonl")
        assert (
            ran.message
            == f"store must have a lock file of its own, got another file in '{folder / 'new.lock'}'"
        )
        assert (folder / "new.lock").read_bytes() == content
    assert not (folder / "new").exists()
    (folder / "new.lock").write_bytes(bytes(76))  # what a disk may leave of one
    assert run_agents(folder, store=folder / "new", sink=folder / "new.jsonl").code == 0


def foreign(folder: Path) -> list[Path]:
    """Whatever lies about: a key, a source, a page of somebody else, an empty file; and a
    folder."""
    (folder / "page.html").write_text("<!doctype html>\n<html lang='en'></html>\n")
    (folder / "empty.html").touch()
    (folder / "hard.html").hardlink_to(folder / "key.jsonl")
    (folder / "soft.html").symlink_to(folder / "flights.csv")
    return [
        folder / name
        for name in (
            "page.html",
            "empty.html",
            "hard.html",
            "soft.html",
            "flights.csv",
            "old.jsonl",
        )
    ]


def test_a_report_is_written_over_nothing_but_a_report(folder: Path) -> None:
    places = foreign(folder)
    before = files(folder)
    for place in places:
        ran = meanstream("report", str(place), "--store", state(folder))
        assert ran.message == f"out must be a new file or an earlier report, got '{place}'"
    assert files(folder) == before
    for _ in range(2):
        assert meanstream("report", str(folder / "x.html"), "--store", state(folder)).code == 0
    (folder / "y.html").symlink_to(folder / "x.html")
    assert meanstream("report", str(folder / "y.html"), "--store", state(folder)).code == 0
    assert (folder / "y.html").is_symlink()


@pytest.mark.parametrize("command", [("demo",), ("demo", "rounds")])
def test_a_demo_takes_a_new_folder_an_empty_one_or_its_own(
    command: tuple[str, ...], folder: Path
) -> None:
    foreign(folder)
    before = files(folder)
    ran = meanstream(*command, "--quiet", "--out", str(folder))
    assert ran.message == f"out must be a new folder, an empty one or one of a demo, got '{folder}'"
    ran = meanstream(*command, "--quiet", "--out", str(folder / "flights.csv"))
    assert "out must be a folder that can be written" in ran.message
    assert files(folder) == before


def test_a_folder_of_a_demo_is_known_again(tmp_path: Path) -> None:
    take_output_folder("out", tmp_path / "a" / "b", MARK)
    (tmp_path / "a" / "b" / "demo.png").touch()
    take_output_folder("out", tmp_path / "a" / "b", MARK)
    assert sorted(path.name for path in (tmp_path / "a" / "b").iterdir()) == [MARK, "demo.png"]


@pytest.mark.parametrize(
    ("command", "picture"),
    [
        (("colme", "--figure", "2"), "colme-figure-2.png"),
        (("dame", "--figure", "1a"), "dame-figure-1a.png"),
        (("kent", "--figure", "2"), "kent-figure-2.png"),
        (("cummings",), "cummings.png"),
        (("drift",), "drift.png"),
    ],
)
def test_a_picture_is_drawn_over_nothing_but_a_picture(
    command: tuple[str, ...], picture: str, folder: Path
) -> None:
    for link in (Path.symlink_to, Path.hardlink_to):
        link(folder / picture, folder / "key.jsonl")
        before = files(folder)
        ran = meanstream("reproduce", *command, "--out", str(folder))
        assert (
            ran.message
            == f"out must be a new file or a picture of this command, got '{folder / picture}'"
        )
        assert files(folder) == before
        (folder / picture).unlink()


def test_a_picture_of_ours_is_known_again(folder: Path) -> None:
    for _ in range(2):
        assert (
            meanstream("reproduce", "dame", "--figure", "1a", "--out", str(folder), "--json").code
            == 0
        )
