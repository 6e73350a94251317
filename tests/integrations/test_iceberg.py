"""`--releases iceberg://...` on a real catalog: a table with a schema, and each release once."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from meanstream.streaming.crash import CrashPoint
from meanstream.streaming.events.encode import EventLines
from meanstream.streaming.events.wire import Population, Release
from meanstream.streaming.open_sink import canonical_sink_location, check_sink_location, open_sink
from meanstream.streaming.sinks.sink_protocol import DeliveryFailedError, Trust
from tests.pipelines.command_line import Ran, run_agents, write_samples

catalogs = pytest.importorskip("pyiceberg.catalog")
PLACE = "iceberg://lake/public.releases"


@pytest.fixture(autouse=True)
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A catalog in SQLite and a warehouse in a folder."""
    (tmp_path / "warehouse").mkdir()
    for name, value in {
        "TYPE": "sql",
        "URI": f"sqlite:///{tmp_path}/catalog.db",
        "WAREHOUSE": f"file://{tmp_path}/warehouse",
    }.items():
        monkeypatch.setenv(f"PYICEBERG_CATALOG__LAKE__{name}", value)
    monkeypatch.setattr(
        "pyiceberg.catalog._ENV_CONFIG", pytest.importorskip("pyiceberg.utils.config").Config()
    )
    return tmp_path


def table() -> Any:
    return catalogs.load_catalog("lake").load_table("public.releases")


def rows() -> list[dict[str, Any]]:
    return sorted(table().scan().to_arrow().to_pylist(), key=lambda row: row["sequence"])


def lines(first: int, stop: int) -> EventLines:
    said = {
        "agent": "a",
        "time": "2024-01-01T00:00:00Z",
        "n": 9,
        "total": 7,
        "mean": 0.5,
        "noise_variance": 0.1,
    }
    said |= {"epsilon": 1.0, "delta": 1e-6, "mode": "tuned", "schema_version": 1}
    made = [
        json.dumps({"release_id": f"d/a:{i}", "index": i, **said}).encode()
        for i in range(first, stop)
    ]
    return EventLines(Release, made)


def run(folder: Path, **changes: Any) -> Ran:
    folder.mkdir(exist_ok=True)
    write_samples(folder / "flights.csv", rows=200)
    budget = {"horizon": 6, "schedule": "geometric:4,1.5", "batch_size": 23}
    return run_agents(folder, **{"releases": PLACE, **budget, **changes})


def test_releases_are_rows_of_a_table_with_a_schema(tmp_path: Path) -> None:
    assert run(tmp_path / "a").code == 0
    assert run(tmp_path / "b", releases=tmp_path / "b" / "releases.jsonl").code == 0
    told = [
        json.loads(line) for line in (tmp_path / "b" / "releases.jsonl").read_text().splitlines()
    ]
    found = rows()
    assert len(found) == len(told) > 10
    assert [row["sequence"] for row in found] == list(range(1, len(told) + 1))
    for row, line in zip(found, told, strict=True):
        same = {name: row[name] for name in line if name not in ("time", "votes")}
        assert same == {name: line[name] for name in same}
        assert (
            row["time"].isoformat().replace("+00:00", "Z").startswith(line["time"].rstrip("Z")[:19])
        )
        assert (row["votes"] is None) == ("votes" not in line)
    assert {str(field.field_type) for field in table().schema().fields} >= {
        "long",
        "string",
        "double",
        "timestamptz",
    }
    assert len(table().snapshots()) > 2


@pytest.mark.parametrize(
    "point", [CrashPoint.WRITE_RELEASES, CrashPoint.FLUSH_SINKS, CrashPoint.MARK_DELIVERY]
)
@pytest.mark.parametrize("after", [False, True])
def test_a_run_that_dies_and_begins_again_delivers_each_release_once(
    point: CrashPoint, after: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from meanstream.streaming.engine import engine_delivery

    assert run(tmp_path / "whole", releases=tmp_path / "whole.jsonl").code == 0
    expected = [
        json.loads(line)["release_id"]
        for line in (tmp_path / "whole.jsonl").read_text().splitlines()
    ]
    real, visits, deaths = engine_delivery.crash_step, 0, 0

    class Dies:
        """Ends the process's work before or after every third visit of a step."""

        def __init__(self, at: CrashPoint, hook: Any) -> None:
            self._step, self._dies = real(at, hook), False
            nonlocal visits, deaths
            if at is point:
                visits += 1
                self._dies = visits % 3 == 2
                deaths += self._dies

        def __enter__(self) -> None:
            if self._dies and not after:
                raise SystemExit(9)
            self._step.__enter__()

        def __exit__(self, *error: Any) -> None:
            self._step.__exit__(*error)
            if self._dies and after:
                raise SystemExit(9)

    monkeypatch.setattr(engine_delivery, "crash_step", Dies)
    runs = 1
    while run(tmp_path / "dies").code != 0:
        runs += 1
        assert runs < 40
    assert deaths == runs - 1 >= 1
    assert [row["release_id"] for row in rows()] == expected


def test_a_commit_that_was_not_noted_is_swallowed_and_one_that_failed_is_written_again() -> None:
    sink: Any = open_sink(PLACE, trust=Trust.PUBLIC, role="releases")
    sink.write(lines(1, 4))
    sink.flush()
    noted = sink.position()
    sink.write(lines(4, 7))
    sink.flush()  # and the note of it is lost
    again: Any = open_sink(PLACE, trust=Trust.PUBLIC, role="releases")
    again.restore(noted)
    again.write(lines(4, 6))
    again.write(lines(6, 9))
    again.flush()
    assert [row["index"] for row in rows()] == list(range(1, 9))
    assert [json.loads(line)["index"] for line in again.later(noted)] == [4, 5, 6, 7, 8]
    noted = again.position()
    again.write(lines(9, 10))
    append, again._table.append = again._table.append, lambda *_, **__: 1 / 0
    with pytest.raises(DeliveryFailedError, match="ZeroDivisionError"):
        again.flush()
    again._table.append = append
    again.restore(noted)
    again.write(lines(9, 10))
    again.flush()
    assert [row["index"] for row in rows()] == list(range(1, 10))


def test_a_sink_that_does_not_read_the_snapshots_would_be_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from meanstream.integrations.iceberg_sink import IcebergSink

    sink: Any = open_sink(PLACE, trust=Trust.PUBLIC, role="releases")
    noted = sink.position()
    sink.write(lines(1, 4))
    sink.flush()
    monkeypatch.setattr(IcebergSink, "_written", lambda self: self._events)
    sink.restore(noted)
    sink.write(lines(1, 4))
    sink.flush()
    assert [row["index"] for row in rows()] == [1, 1, 2, 2, 3, 3] or len(rows()) == 6


def test_a_new_store_next_to_a_table_with_releases_is_refused(tmp_path: Path) -> None:
    assert run(tmp_path / "a").code == 0
    ran = run(tmp_path / "b")
    assert "releases must hold nothing that this store has not charged" in ran.message
    assert len({row["release_id"] for row in rows()}) == len(rows())


def test_what_is_not_public_releases_is_refused(tmp_path: Path) -> None:
    refused = run(tmp_path / "a", sink=PLACE, releases=None).message
    assert refused.startswith("sink must be a file, a topic or '-': a table takes --releases alone")
    assert (
        not (tmp_path / "catalog.db").exists()
        or not catalogs.load_catalog("lake").list_namespaces()
    )
    sink = open_sink(PLACE, trust=Trust.PUBLIC, role="releases")
    with pytest.raises(TypeError, match="must be given releases, got Population"):
        sink.write(EventLines(Population, [b"{}"]))


@pytest.mark.parametrize(
    ("place", "rule"),
    [
        ("iceberg://lake/releases", "releases must be iceberg://CATALOG/NAMESPACE.TABLE, got"),
        (
            "iceberg://lake/a.b;DROP TABLE x",
            "releases must be iceberg://CATALOG/NAMESPACE.TABLE, got",
        ),
        (
            "iceberg://other/a.b",
            "releases must name a catalog of .pyiceberg.yaml or PYICEBERG_CATALOG__OTHER__URI",
        ),
    ],
)
def test_a_place_that_is_none_is_one_line(place: str, rule: str) -> None:
    with pytest.raises(ValueError, match=rule.replace(".", r"\.")):
        check_sink_location("releases", place)


def test_a_table_of_other_columns_is_refused() -> None:
    import pyarrow as pa

    catalog = catalogs.load_catalog("lake")
    catalog.create_namespace("public")
    catalog.create_table("public.releases", schema=pa.schema([("x", pa.int64())]))
    with pytest.raises(
        ValueError, match="releases must be a table of the columns sequence, release_id"
    ):
        check_sink_location("releases", PLACE)
    assert canonical_sink_location("ICEBERG://lake/public.releases") == PLACE
