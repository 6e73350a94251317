"""`--person COLUMN --per-person K`: which samples count, in runs that are cut, killed, reordered,
repeated and late."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import csv as arrow_csv
from pyarrow import parquet

from tests.pipelines.command_line import SECRET, Ran, arguments, asks, options, run_agents

N = 240
LIMIT = 3
HEADER = "ward,score,at,visit,patient"
WHO = {
    "agent": "ward",
    "value": "score",
    "time": "at",
    "id": "visit",
    "person": "patient",
    "per_person": LIMIT,
}
HOW = {
    "lower": 0,
    "counter": "toeplitz",
    "upper": 10,
    "schedule": "geometric:4,1.5",
    "lateness": "2h",
    "final_release": False,
}

Row = tuple[str, float, int, str, str]


def rows() -> list[Row]:
    """Samples with a minute between them, of few patients in two wards: the values are all
    different."""
    draw = np.random.default_rng(7)
    score, patient = draw.uniform(-1, 11, N).round(3).tolist(), draw.integers(0, 25, N).tolist()
    return [(f"w{i % 2}", score[i], i, f"v{i}", f"p{patient[i]}") for i in range(N)]


def line(row: Row) -> str:
    ward, score, minute, visit, patient = row
    return f"{ward},{score},{1357034400 + 60 * minute},{visit},{patient}"


def over(samples: list[Row], limit: int = LIMIT) -> list[int]:
    """Say by hand which samples are over the limit: the numbers of their lines, of a file in
    event-time order."""
    counted: Counter[tuple[str, str]] = Counter()
    found = []
    for number, (ward, _, _, _, patient) in enumerate(samples, 1):
        counted[ward, patient] += 1
        if counted[ward, patient] > limit:
            found.append(number)
    return found


def write(path: Path, samples: list[Row], more: tuple[str, ...] = ()) -> Path:
    path.write_text("\n".join([HEADER, *map(line, samples), *more]) + "\n")
    return path


def run(folder: Path, source: str = "s.csv", **changes: Any) -> Ran:
    folder.mkdir(exist_ok=True)
    named = {
        "source": source if ":" in source else folder.parent / source,
        "dead_letters": folder / "dead.jsonl",
        **WHO,
        **HOW,
        **changes,
    }
    return run_agents(folder, **named)


def letters(folder: Path) -> dict[str, list[int]]:
    """Which records were rejected, from 1, by reason."""
    found: dict[str, list[int]] = {}
    for text in (folder / "dead.jsonl").read_text().splitlines():
        letter = json.loads(text)
        place = letter["position"] - letter["source"].endswith(".csv")  # the header is a line
        found.setdefault(letter["reason"], []).append(place)
    return {reason: sorted(positions) for reason, positions in found.items()}


def releases(folder: Path) -> list[bytes]:
    return sorted((folder / "releases.jsonl").read_bytes().splitlines())


def without_over(samples: list[Row]) -> list[Row]:
    return [row for number, row in enumerate(samples, 1) if number not in set(over(samples))]


@pytest.fixture
def whole(tmp_path: Path) -> Path:
    """A run over everything at once."""
    write(tmp_path / "s.csv", rows())
    assert run(tmp_path / "whole").code == 0
    return tmp_path / "whole"


def test_the_first_samples_of_a_person_count_and_the_rest_are_dead_letters(whole: Path) -> None:
    assert letters(whole) == {"over_person": over(rows())}
    assert 20 < len(over(rows())) < N - 50


def test_the_figures_of_a_run_add_up(tmp_path: Path) -> None:
    write(tmp_path / "s.csv", rows())
    told = run(tmp_path / "a", json=True).json
    assert told["rejected"] == {"over_person": len(over(rows()))}
    assert told["events"] == N == told["accepted"] + len(over(rows()))


def test_what_is_over_moves_nothing(whole: Path, tmp_path: Path) -> None:
    """Releases are those of a stream without these samples, and of one in which they have other
    values."""
    write(tmp_path / "few.csv", without_over(rows()))
    assert run(tmp_path / "few", "few.csv").code == 0
    assert releases(tmp_path / "few") == releases(whole)
    changed = [
        (w, 9.9 if n in set(over(rows())) else s, t, v, p)
        for n, (w, s, t, v, p) in enumerate(rows(), 1)
    ]
    write(tmp_path / "other.csv", changed)
    assert run(tmp_path / "other", "other.csv").code == 0
    assert releases(tmp_path / "other") == releases(whole)
    assert letters(tmp_path / "other") == letters(whole)


@pytest.mark.parametrize("batch_size", [1, 7, 100])
def test_how_the_stream_is_cut_into_batches_decides_nothing(
    batch_size: int, whole: Path, tmp_path: Path
) -> None:
    assert run(tmp_path / "cut", batch_size=batch_size).code == 0
    assert (releases(tmp_path / "cut"), letters(tmp_path / "cut")) == (
        releases(whole),
        letters(whole),
    )


def test_a_stream_in_parts_with_restarts_is_the_whole_stream(whole: Path, tmp_path: Path) -> None:
    """The file grows; each run goes on with the store of the last one."""
    for stop in (50, 51, 130, N):
        write(tmp_path / "s.csv", rows()[:stop])
        assert run(tmp_path / "parts", sort=False).code == 0
    assert (releases(tmp_path / "parts"), letters(tmp_path / "parts")) == (
        releases(whole),
        letters(whole),
    )


def test_the_order_of_arrival_decides_nothing(whole: Path, tmp_path: Path) -> None:
    delay = np.random.default_rng(8).uniform(0, 90, N)
    shuffled = sorted(rows(), key=lambda row: row[2] + delay[row[2]])
    assert shuffled != rows()
    write(tmp_path / "mixed.csv", shuffled)
    assert run(tmp_path / "mixed", "mixed.csv", sort=False, batch_size=11).code == 0
    assert releases(tmp_path / "mixed") == releases(whole)
    minute = [
        shuffled[position - 1][2] + 1 for position in letters(tmp_path / "mixed")["over_person"]
    ]
    assert sorted(minute) == over(rows())


def test_duplicates_and_late_samples_take_nothing_of_the_limit(whole: Path, tmp_path: Path) -> None:
    """Each sample comes twice, and old ones at the end: what counts is the same."""
    twice = [row for row in rows() for _ in range(2)]
    late = [(w, s, t, f"late {v}", p) for w, s, t, v, p in rows()[:30]]
    write(tmp_path / "twice.csv", twice + late)
    assert run(tmp_path / "twice", "twice.csv", sort=False, batch_size=13).code == 0
    assert releases(tmp_path / "twice") == releases(whole)
    found = letters(tmp_path / "twice")
    assert (len(found["duplicate"]), len(found["late"])) == (N, 30)
    assert found["over_person"] == [2 * number - 1 for number in over(rows())]


@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
def test_other_formats_give_the_same(kind: str, whole: Path, tmp_path: Path) -> None:
    table = arrow_csv.read_csv(tmp_path / "s.csv", convert_options=arrow_csv.ConvertOptions(
        column_types={"score": pa.float64()}
    ))  # fmt: skip
    if kind == "parquet":
        parquet.write_table(table, tmp_path / "s.parquet")
    else:
        (tmp_path / "s.jsonl").write_text(
            "".join(json.dumps(row) + "\n" for row in table.to_pylist())
        )
    assert run(tmp_path / kind, f"s.{kind}").code == 0
    assert (releases(tmp_path / kind), letters(tmp_path / kind)) == (
        releases(whole),
        letters(whole),
    )


def test_a_record_without_a_person_is_rejected_alone(whole: Path, tmp_path: Path) -> None:
    bad = ("w0,5,1357034400,x1,", f"w0,5,1357034400,x2,{'p' * 300}", "w0,5,1357034400,x3,a\x07b")
    write(tmp_path / "bad.csv", rows(), bad)
    assert run(tmp_path / "bad", "bad.csv").code == 0
    assert releases(tmp_path / "bad") == releases(whole)
    found = letters(tmp_path / "bad")
    assert (found["missing_person"], found["bad_person"]) == ([N + 1], [N + 2, N + 3])
    assert found["over_person"] == over(rows())


def test_the_noise_is_k_times_as_wide(whole: Path, tmp_path: Path) -> None:
    assert run(tmp_path / "one", person=None, per_person=None).code == 0
    first, wide = (
        json.loads(releases(folder)[0])["noise_variance"] for folder in (tmp_path / "one", whole)
    )
    assert wide / first == pytest.approx(LIMIT**2, rel=1e-6)


def test_a_store_keeps_its_limit(whole: Path) -> None:
    assert "per_person" in run(whole, per_person=LIMIT + 1).message
    assert run(whole, person=None, per_person=None).code == 2


def test_a_store_keeps_its_column_of_persons(whole: Path, tmp_path: Path) -> None:
    """Another column would count everybody from the start; one that was renamed is adopted."""
    (tmp_path / "s.csv").write_text((tmp_path / "s.csv").read_text().replace("patient", "guest", 1))
    assert run(whole, person="guest").message.startswith(
        "person must be 'patient' as in the store that is continued"
    )
    adopted = asks(
        "store", "adopt", "--store", str(whole / "state.db"), "--person", "guest", "--json"
    ).json
    assert (adopted["from"], adopted["to"]) == ({"person": "patient"}, {"person": "guest"})
    assert run(whole, person="guest").message.startswith(
        "source must be the file that this store was filled from"
    )


def test_samples_over_the_limit_are_not_replayed(whole: Path, tmp_path: Path) -> None:
    before = releases(whole)
    named = {
        "dead_letters": whole / "dead.jsonl",
        "source": tmp_path / "s.csv",
        "quiet": True,
        **WHO,
        **HOW,
    }
    typed = arguments(options(whole, **named))
    secret = {"MEANSTREAM_SECRET": SECRET}
    told = asks("dlq", "replay", *typed, "--json", environment=secret)
    assert (told.json["replayed"], told.json["releases"]) == (0, 0)
    assert releases(whole) == before
    refused = asks("dlq", "replay", *typed, "--reason", "over_person", environment=secret)
    assert (
        refused.message
        == "reason must be one that can pass, got 'over_person': it was decided for good"
    )


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"per_person": None}, "per_person must be given with person, got None"),
        ({"person": None}, "person must be given with per_person, got None"),
        ({"per_person": 0}, "per_person must lie in 1..65535, got 0"),
        ({"person": "nobody"}, "person column must be in the source, got 'nobody'"),
        ({"person": "ward"}, "columns must be distinct, got ward, score, at, visit, ward"),
        ({"source": "synthetic:5,50", "agent": None, "value": None, "time": None, "id": None},
         "person column must be in the source, got 'patient'"),
    ],
)  # fmt: skip
def test_what_cannot_be_meant_is_refused_before_anything_is_begun(
    changes: dict[str, Any], message: str, tmp_path: Path
) -> None:
    write(tmp_path / "s.csv", rows())
    assert run(tmp_path / "a", changes.pop("source", "s.csv"), **changes).message.startswith(
        message
    )
    assert not (tmp_path / "a" / "state.db").exists()


def test_a_dry_run_and_the_report_say_whose_data_it_is(whole: Path) -> None:
    told = run(whole, dry_run=True, json=True).json
    assert told["privacy"]["per_person"] == LIMIT
    assert (
        "for all samples of a person, at most 3, over at most 40 releases"
        in run(whole, dry_run=True).out.decode()
    )
    html = whole / "report.html"
    assert asks("report", str(html), "--store", str(whole / "state.db")).code == 0
    assert "All samples of one person within an agent are protected together" in html.read_text()
    assert "--per-person 3" in html.read_text()


def test_explain_speaks_of_the_person_and_of_the_price(tmp_path: Path) -> None:
    named = {
        "lower": 0,
        "upper": 1,
        "epsilon": 1,
        "delta": 1e-6,
        "person": "patient",
        "per_person": 10,
    }
    facts = asks("explain", "agents", "--json", *arguments(named)).json
    assert (facts["privacy_unit"], facts["unit"]["noise_variance_factor"]) == ("person", 100)
    assert (facts["total"]["epsilon"], facts["bounds"]["sensitivity"]) == (1.0, 10.0)
    text = asks("explain", "agents", *arguments(named)).out.decode()
    for part in (
        "All samples of one person within an agent, against everyone else together",
        "at most 10 count",
        "10^2 = 100 times that of protecting one sample",
        "which samples were beyond a person's limit",
        "agents that hold samples of one person",
    ):
        assert part in text


def test_a_pipeline_of_beam_counts_the_same_samples(whole: Path, tmp_path: Path) -> None:
    """The command line on FnApiRunner: the engine's releases, byte by byte but for votes, which
    agents on Beam cast alone, and as many samples over the limit."""
    pytest.importorskip("apache_beam")
    (tmp_path / "beam").mkdir()
    named = options(tmp_path / "beam", source=tmp_path / "s.csv", **WHO, **HOW)
    secret = {"MEANSTREAM_SECRET": SECRET}
    ran = asks(
        "run", "agents", "--runner", "FnApiRunner", "--json", *arguments(named), environment=secret
    )
    assert ran.code == 0
    on_beam, of_engine = (
        [re.sub(rb'"votes":{[^}]*},', b"", line) for line in releases(folder)]
        for folder in (tmp_path / "beam", whole)
    )
    assert on_beam == of_engine
    assert b"noise_variance" in on_beam[0]
    assert (ran.json["rejected_over_person"], ran.json["accepted"]) == (len(over(rows())), N)
