"""`meanstream dlq`: what was not used is counted, shown without a byte of it, copied out only by
name, and replayed."""

from __future__ import annotations

import gzip
import json
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.pipelines.command_line import SECRET, Ran, arguments, asks, files, meanstream, options

DIGITS = "7031415926535"
"""Part of every value and of every bad record, and of nothing else."""


def sample(
    i: int, *, value: str | None = None, time: str | None = None, flight: str | None = None
) -> str:
    good = f"2013-01-{1 + i // 24:02}T{i % 24:02}:00:00Z"
    delay = f"{(i * 37) % 100}.{DIGITS}"
    return f"N{i % 3},{value or delay},{time or good},{flight or f'F{i}'},{delay},{good}"


BAD = {
    2: sample(0, value=f"{DIGITS}x"),
    10: sample(8, time=f"the {DIGITS}th of May"),
    30: sample(28, time="2013-01-01T00:00:00Z"),  # late
    40: sample(38, flight="F35"),  # a copy of the one before of its agent
    50: sample(48, value=f'"{DIGITS}'),
    51: f"N0,{DIGITS}",
}
"""Line to record; the last two lines are bad in every way to read the file."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A run of a file with bad records, on which `dlq` is then used."""
    lines = {n: BAD.get(n, sample(n - 2)) for n in range(2, 62)}
    text = "tailnum,dep_delay,time_hour,flight,delay,hour\n" + "\n".join(lines.values()) + "\n"
    (tmp_path / "flights.csv").write_text(text)
    assert run(tmp_path).code == 0
    return tmp_path


def named(folder: Path, **changes: Any) -> list[str]:
    letters = folder / "dead_letters.jsonl"
    common = {
        "id": "flight",
        "dead_letters": letters,
        "lateness": "3h",
        "sort": False,
        "quiet": True,
    }
    return arguments(options(folder, **{**common, **changes}))


def run(folder: Path, **changes: Any) -> Ran:
    return meanstream(
        "run", "agents", *named(folder, **changes), environment={"MEANSTREAM_SECRET": SECRET}
    )


def replay(folder: Path, *more: str, **changes: Any) -> Ran:
    """Replay with the columns that are right."""
    given = named(folder, **{"value": "delay", "time": "hour", **changes})
    return asks("dlq", "replay", *given, *more, environment={"MEANSTREAM_SECRET": SECRET})


def dlq(command: str, folder: Path, *more: str, place: str = "dead_letters.jsonl") -> Ran:
    return meanstream("dlq", command, "--dead-letters", str(folder / place), *more)


def newest_estimates(folder: Path) -> dict[str, tuple[int, float]]:
    lines = (folder / "estimates.jsonl").read_bytes().splitlines()
    return {e["agent"]: (e["n"], round(e["local"], 9)) for e in map(json.loads, lines)}


def test_list_counts_by_reason_and_tells_where(folder: Path) -> None:
    listed = dlq("list", folder, "--json").json
    assert (listed["records"], listed["unreadable"]) == (6, 0)
    place = {"source": "flights.csv", "partition": 0}
    no_size = {"smallest": None, "largest": None}
    assert listed["groups"] == [
        {"reason": "bad_time", **place, "records": 1, "first": 10, "last": 10, **no_size},
        {"reason": "bad_value", **place, "records": 1, "first": 2, "last": 2, **no_size},
        {"reason": "duplicate", **place, "records": 1, "first": 40, "last": 40, **no_size},
        {"reason": "late", **place, "records": 1, "first": 30, "last": 30, **no_size},
        {
            "reason": "malformed",
            **place,
            "records": 2,
            "first": 50,
            "last": 51,
            "smallest": 16,
            "largest": 128,
        },
    ]
    table = [line.split() for line in dlq("list", folder).out.decode().splitlines()]
    assert table[0] == ["reason", "source", "partition", "records", "first", "last", "bytes"]
    assert table[-1] == ["malformed", "flights.csv", "0", "2", "50", "51", "16-128"]


def test_show_chooses_and_limits(folder: Path) -> None:
    shown = dlq("show", folder, "--reason", "late", "--reason", "malformed", "--json").json
    assert [(row["reason"], row["position"], row["size"]) for row in shown["dead_letters"]] == [
        ("late", 30, None),
        ("malformed", 50, 128),
        ("malformed", 51, 16),
    ]
    ran = dlq("show", folder, "--limit", "2")
    assert [line.split()[0] for line in ran.out.decode().splitlines()] == [
        "reason",
        "bad_value",
        "bad_time",
    ]
    assert ran.err == b"4 more: see --limit\n"
    assert dlq("show", folder, "--partition", "1", "--json").json["dead_letters"] == []


def test_nothing_that_is_shown_holds_a_value_and_nothing_is_changed(folder: Path) -> None:
    before = files(folder)
    assert any(DIGITS.encode() in data for data in before.values())
    source = ("--source", str(folder / "flights.csv"))
    for ran in (
        dlq("list", folder),
        dlq("list", folder, "--json", "--store", str(folder / "state.db")),
        dlq("show", folder, *source),
        dlq("show", folder, "--json", *source),
    ):
        assert ran.code == 0
        assert ran.out
        assert DIGITS.encode() not in ran.out + ran.err
    assert {name: data for name, data in files(folder).items() if name in before} == before


def test_the_records_themselves_go_into_a_private_file_only(folder: Path) -> None:
    raw = folder / "raw.csv"
    source = ("--source", str(folder / "flights.csv"))
    ran = dlq(
        "show",
        folder,
        "--reason",
        "bad_value",
        "--reason",
        "malformed",
        "--raw-to",
        str(raw),
        *source,
    )
    assert ran.code == 0
    assert DIGITS.encode() not in ran.out + ran.err
    assert f"{str(raw)!r} holds RAW DATA of 3 records" in ran.err.decode()
    assert raw.read_text().splitlines()[1:] == [BAD[2], BAD[50], BAD[51]]
    assert stat.S_IMODE(raw.stat().st_mode) == 0o600
    # Mended, they are a source of their own, for the same store: they come late, and a replay lets
    # them count.
    raw.write_text(
        raw.read_text()
        .replace(f"{DIGITS}x", "5")
        .replace(f'"{DIGITS}', "5")
        .replace(BAD[51], sample(49))
    )
    assert (
        meanstream("store", "adopt", "--store", str(folder / "state.db"), "--source", str(raw)).code
        == 0
    )
    assert run(folder, source=raw, json=True).json["rejected"] == {"late": 3}
    told = replay(folder, source=raw, json=True).json
    assert (told["dead_letters"], told["accepted"]) == (3, 3)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--raw-to", "-"], "raw_to must be a new file, got '-'"),
        (
            ["--raw-to", "/dev/stdout"],
            "raw_to must be a new file, got '/dev/stdout', which exists",
        ),
        (["--raw-to", "{folder}/dead_letters.jsonl"], "which exists"),
        (["--raw-to", "{folder}/no/raw.csv"], "raw_to must be in a writable folder"),
        (
            ["--reason", "malfromed"],
            "reason must be one of a dead letter's, got 'malfromed'; did you mean 'malformed'?",
        ),
        (
            ["--source", "{folder}/fligths.csv"],
            "name, got '{folder}/fligths.csv'; did you mean 'flights.csv'?",
        ),
    ],
)
def test_what_cannot_be_meant_is_refused(folder: Path, more: list[str], message: str) -> None:
    typed = [word.format(folder=folder) for word in more]
    if "--source" not in typed:
        typed += ["--source", str(folder / "flights.csv")]
    before = files(folder)
    assert message.format(folder=folder) in dlq("show", folder, *typed).message
    assert files(folder) == before


def test_raw_records_of_a_file_that_has_changed_are_refused_by_the_store(folder: Path) -> None:
    """In the place of a bad record stands one that was counted."""
    source, raw = folder / "flights.csv", folder / "raw.csv"
    lines = source.read_text().splitlines(keepends=True)
    source.write_text("".join([lines[0], sample(500) + "\n", *lines[1:]]))
    more = ("--source", str(source), "--raw-to", str(raw), "--store", str(folder / "state.db"))
    assert dlq("show", folder, *more).message.startswith(
        "source must be the file that this store was filled from"
    )
    assert not raw.exists()
    assert "was not checked: see --store" in dlq("show", folder, *more[:4]).err.decode()
    source.write_text("".join(lines))
    raw.unlink()
    assert dlq("show", folder, *more).code == 0


def test_raw_records_need_their_source(folder: Path) -> None:
    message = dlq("show", folder, "--raw-to", str(folder / "raw")).message
    assert message == "source must be given with raw_to"
    assert not (folder / "raw").exists()


JUNK = [
    b"{broken 7031415926535",
    b'{"reason":"7031415926535","source":"flights.csv","partition":0,"position":3,"size":null,"schema_version":1}',
    b'{"reason":"late","source":"flights.csv","partition":0,"position":3,"size":null,"value":7031415926535}',
    b'{"reason":"late","source":"flights.csv","partition":0,"position":-1,"size":null,"schema_version":1}',
    b'{"reason":"late","source":"flights.csv","partition":0,"position":%d,"schema_version":1}'
    % 2**60,
    b'{"reason":"late","source":"flights.csv","partition":0,"position":3,"size":null,"schema_version":2}',
    b"[7031415926535]",
    b"\xff\xfe",
    b'{"reason":"late","source":"' + b"7031415926535" * 200_000 + b'","position":3}',
    b"",
]


def test_entries_that_are_no_dead_letters_are_counted_and_left_out(folder: Path) -> None:
    place = folder / "dead_letters.jsonl"
    lines = place.read_bytes().splitlines()
    place.write_bytes(
        b"\n".join([*JUNK, *lines, *JUNK])
    )  # the last line has no end, as after a kill
    for command in ("list", "show"):
        ran = dlq(command, folder)
        assert ran.err == b"18 entries are no dead letters and were left out\n"
        assert DIGITS.encode() not in ran.out
        assert dlq(command, folder, "--json").json["records"] == 6
    assert replay(folder, json=True).json["replayed"] == 5


def test_a_name_cannot_steer_the_terminal(folder: Path) -> None:
    letter = {"reason": "late", "source": "x\u001b[2J\n.csv", "position": 3, "schema_version": 1}
    (folder / "dead_letters.jsonl").write_text(json.dumps(letter) + "\n")
    assert b" x\\x1b[2J\\n.csv " in dlq("show", folder).out


@pytest.mark.parametrize("kind", ["dead_letters.parquet", "dead_letters.jsonl.gz"])
def test_letters_elsewhere_are_the_same(kind: str, folder: Path) -> None:
    if kind.endswith(".gz"):
        (folder / kind).write_bytes(gzip.compress((folder / "dead_letters.jsonl").read_bytes()))
    else:
        other = {"store": folder / "b.db", "sink": folder / "b.jsonl", "releases": None}
        assert run(folder, dead_letters=folder / kind, **other).code == 0
    assert dlq("list", folder, "--json", place=kind).json == dlq("list", folder, "--json").json
    assert replay(folder, "--from", str(folder / kind), json=True).json["replayed"] == 5


def damaged_places(folder: Path) -> Iterator[tuple[str, str]]:
    (folder / "torn.jsonl.gz").write_bytes(gzip.compress(b"x" * 100_000)[:-9])
    (folder / "p.parquet").mkdir()
    (folder / "p.parquet" / "part-000000.parquet").write_bytes(b"no parquet")
    yield "missing.jsonl", "dead_letters must be a readable file"
    yield "letters.txt", "dead_letters must be a .jsonl file"
    yield "-", "dead_letters must be a .jsonl file"
    yield "torn.jsonl.gz", "dead_letters must be a readable, undamaged file"
    yield "missing.parquet", "dead_letters must be a folder of parts"
    yield "p.parquet", "dead_letters must be undamaged Parquet"


def test_a_place_that_cannot_be_read_is_refused(folder: Path) -> None:
    for place, message in damaged_places(folder):
        assert dlq("list", folder, place=place).message.startswith(message)
        assert replay(folder, "--from", str(folder / place)).message.startswith(message)
    (folder / "empty.parquet").mkdir()
    assert dlq("list", folder, "--json", place="empty.parquet").json["records"] == 0


def test_a_replay_gives_what_a_run_with_good_records_would_have(
    folder: Path, tmp_path: Path
) -> None:
    told = replay(folder, json=True).json
    assert {
        k: told[k]
        for k in ("dead_letters", "replayed", "settled", "missing", "repeated", "accepted")
    } == {
        "dead_letters": 5,
        "replayed": 5,
        "settled": 0,
        "missing": 0,
        "repeated": 0,
        "accepted": 3,
    }
    assert told["rejected"] == {"malformed": 2}
    whole = {
        "value": "delay",
        "time": "hour",
        "store": folder / "w.db",
        "releases": None,
        "dead_letters": None,
    }
    estimates = folder / "w.jsonl"
    assert run(folder, sink=estimates, **whole).code == 0
    replayed = newest_estimates(folder)
    estimates.rename(folder / "estimates.jsonl")
    assert replayed == newest_estimates(folder)


def test_a_second_replay_counts_nothing_again(folder: Path) -> None:
    replay(folder)
    estimates, releases = newest_estimates(folder), (folder / "releases.jsonl").read_bytes()
    told = replay(folder, json=True).json
    assert (told["dead_letters"], told["replayed"], told["settled"]) == (5, 2, 3)
    assert (told["accepted"], told["releases"]) == (0, 0)
    assert newest_estimates(folder) == estimates
    assert (folder / "releases.jsonl").read_bytes() == releases


def test_list_with_the_store_leaves_out_what_was_replayed(folder: Path) -> None:
    replay(folder, "--reason", "late")
    assert dlq("list", folder, "--json").json["records"] == 6
    left = dlq("list", folder, "--json", "--store", str(folder / "state.db")).json
    assert [(group["reason"], group["records"]) for group in left["groups"]] == [
        ("bad_time", 1),
        ("bad_value", 1),
        ("malformed", 2),
    ]
    assert "store must be" in dlq("list", folder, "--store", str(folder / "flights.csv")).message


def test_a_replay_tells_in_one_line_and_shows_no_value(folder: Path) -> None:
    ran = asks(
        "dlq",
        "replay",
        *named(folder, quiet=None, value="delay", time="hour"),
        environment={"MEANSTREAM_SECRET": SECRET},
    )
    lines = ran.err.decode().splitlines()
    assert (ran.code, ran.out) == (0, b"")
    assert lines[-1].startswith(
        "5 records with dead letters, 5 replayed; 5 events, 3 accepted, rejected: 2 malformed; "
    )
    assert DIGITS not in ran.err.decode()


def test_the_budget_is_that_of_the_store(folder: Path) -> None:
    """Releases of a replay are charged like any others, and no index is released twice."""

    def spent() -> dict[str, int]:
        rows = meanstream("budget", "--store", str(folder / "state.db"), "--json").json["agents"]
        return {row["agent"]: row["spent"] for row in rows}

    before = spent()
    told = replay(folder, "--reason", "late", json=True).json
    assert told["accepted"] == 1
    assert told["releases"] == 1
    assert sum(spent().values()) == sum(before.values()) + 1
    ids = [
        json.loads(line)["release_id"]
        for line in (folder / "releases.jsonl").read_bytes().splitlines()
    ]
    assert len(set(ids)) == len(ids)


@pytest.mark.parametrize(
    ("more", "changes", "message"),
    [
        (["--reason", "duplicate"], {}, "reason must be one that can pass, got 'duplicate'"),
        (
            ["--reason", "latte"],
            {},
            "reason must be one of a dead letter's, got 'latte'; did you mean 'late'?",
        ),
        ([], {"dead_letters": None}, "from must be given, or dead_letters"),
        (
            [],
            {"source": "other.csv"},
            "source must be one that the store has read, got 'other.csv'",
        ),
        ([], {"epsilon": 2}, "epsilon must be 1.0 as in the store that is continued, got 2"),
        ([], {"source": None}, "source must be given"),
        (
            [],
            {"value": "dealy"},
            "value column must be in the source, got 'dealy'; did you mean 'delay'?",
        ),
    ],
)
def test_replays_that_cannot_be_meant_are_refused(
    folder: Path, more: list[str], changes: dict[str, Any], message: str
) -> None:
    if "source" in changes and changes["source"] is not None:
        changes = {"source": folder / changes["source"]}
        changes["source"].write_text((folder / "flights.csv").read_text())
    before = newest_estimates(folder)
    assert message in replay(folder, *more, **changes).message
    assert newest_estimates(folder) == before


def test_one_file_of_options_serves_the_run_and_its_replay(folder: Path) -> None:
    config = folder / "run.yaml"
    named_options = {
        **options(folder),
        "id": "flight",
        "dead-letters": folder / "dead_letters.jsonl",
    }
    config.write_text(
        "".join(f"{k.replace('_', '-')}: {v}\n" for k, v in named_options.items()) + "quiet: true\n"
    )
    ran = asks("dlq", "replay", "--config", str(config), environment={"MEANSTREAM_SECRET": SECRET})
    assert (ran.code, ran.err) == (0, b"")
    assert dlq("list", folder, "--store", str(folder / "state.db"), "--json").json["records"] == 4


def test_a_split_and_a_joined_line_shift_no_good_record_into_a_replay(tmp_path: Path) -> None:
    lines = {n: sample(n - 2) for n in range(2, 162)}
    lines |= {
        20: f"N0,{DIGITS}\rN1,{DIGITS}",
        90: sample(88, flight='"F88'),
        91: sample(89, flight='F89"'),
    }
    lines[90] = '"' + sample(88)
    text = "tailnum,dep_delay,time_hour,flight,delay,hour\n" + "\n".join(lines.values()) + "\n"
    (tmp_path / "flights.csv").write_bytes(text.encode())
    assert run(tmp_path, json=True).json["accepted"] == 158
    raw = tmp_path / "raw.csv"
    letters = tmp_path / "dead_letters.jsonl"
    shown = meanstream(
        *("dlq", "show", "--dead-letters", str(letters), "--source", str(tmp_path / "flights.csv")),
        *("--raw-to", str(raw)),
    )
    assert shown.code == 0
    assert raw.read_bytes().split(b"\n")[1:-1] == [lines[20].encode(), lines[90].encode()]
    again = asks(
        *("dlq", "replay", *named(tmp_path, json=True)), environment={"MEANSTREAM_SECRET": SECRET}
    )
    assert (again.json["accepted"], again.json["rejected"]) == (0, {"malformed": 2})
