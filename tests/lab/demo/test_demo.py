"""The demo on the real flights, and the parts that it is made of on small tables."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from meanstream.lab.demo import agents_demo as agents
from meanstream.lab.demo.demo_results import Answers, score_demo
from meanstream.lab.demo.flights import Truth, flights_file, hold_back_flights, read_flights
from tests.code_blocks import ROOT, blocks_of
from tests.lab.demo.flights_of_few import flights_of_few_aircraft
from tests.pipelines.command_line import meanstream


def test_every_second_flight_of_an_aircraft_is_held_back() -> None:
    flights = pa.table(
        {"tailnum": ["a", "b", "a", "a", "b", "a"], "dep_delay": [1, 10, 200, 3, 20, 4]}
    )
    stream, truth = hold_back_flights(flights)
    assert stream.to_pydict() == {"tailnum": ["a", "b", "a"], "dep_delay": [1, 10, 3]}
    assert truth.agent.tolist() == ["a", "b"]
    assert truth.count.tolist() == [2, 1]
    assert truth.mean.tolist() == [62.0, 20.0]  # 200 is clipped to 120
    assert truth.variance_of_mean[0] == pytest.approx(np.var([120, 4], ddof=1) / 2)


def test_the_flights_are_all_there_and_in_order_of_time() -> None:
    flights = read_flights(flights_file())
    assert flights.num_rows == 328_521
    assert np.all(np.diff(flights["time_hour"].to_numpy()) >= np.timedelta64(0, "s"))


def test_the_score_is_free_of_the_noise_of_the_truth() -> None:
    """Errors of variance 1 and 4 against a truth of variance 2: the ratio is 1/4, within 5 standard
    errors (6e-7)."""
    generator = np.random.default_rng(5)
    n = 20_000
    true = generator.normal(0, 10, n)
    truth = Truth(
        agent=np.arange(n).astype(str),
        count=np.full(n, 30),
        mean=true + generator.normal(0, 2**0.5, n),
        variance_of_mean=np.full(n, 2.0),
    )
    value, local = true + generator.normal(0, 1, n), true + generator.normal(0, 2, n)
    columns = {"value": value, "local": local, "lower": value - 1.96, "upper": value + 1.96}
    measured = score_demo(truth, replace(Answers.none(n), count=truth.count, **columns))
    assert measured is not None
    assert abs(measured.ratio - 0.25) < 5 * measured.stderr
    assert abs(measured.coverage - 0.95) < 5 * (0.05 * 0.95 / n) ** 0.5 + 0.01


def test_a_score_over_few_aircraft_is_none() -> None:
    few = np.full(20, 30)
    nothing = np.zeros(20)
    truth = Truth(agent=few.astype(str), count=few, mean=nothing, variance_of_mean=nothing)
    columns = dict.fromkeys(("value", "local", "lower", "upper"), nothing)
    assert score_demo(truth, replace(Answers.none(20), count=few, **columns)) is None


def shown_demo() -> str:
    """Give the demo's output as the page of the flights shows it."""
    page = ROOT / "docs" / "tutorials" / "flights.md"
    return next(block.text for block in blocks_of(page) if "Mean departure delay" in block.text)


def lines_of(output: str) -> list[str]:
    """Give the lines above the name of the picture, without the spaces around them."""
    return [line.strip() for line in output.partition("\nPicture:")[0].splitlines()]


def words_of(output: str) -> str:
    """Leave out of the demo's output what other flights change: names, figures, widths, where lines
    break."""
    said = re.sub(r"\bN\d\w*|-?\b\d[\d.,e-]*", "0", " ".join(lines_of(output)))
    return re.sub(r"([━─])+", r"\1", " ".join(said.split()))


def run_demo(folder: Path, seed: int = 0) -> dict[str, Any]:
    return meanstream("demo", "--quiet", "--json", "--seed", str(seed), "--out", str(folder)).json


def test_the_demo_learns_and_repeats_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fewer aircraft learn less from each other: .72 of the squared error of learning alone, with
    this seed."""
    flights = flights_of_few_aircraft()
    monkeypatch.setattr(agents, "read_flights", lambda _: flights)
    first = run_demo(tmp_path / "first")
    errors = first["squared_error_relative_to_alone"]
    assert errors["learned_prior"]["ratio"] < min(0.8, errors["tests"]["ratio"])
    assert errors["learned_prior"]["aircraft"] > 150
    assert errors["learned_prior"]["coverage"] > 0.9
    assert Path(first["picture"]).stat().st_size > 20_000
    second = meanstream("demo", "--quiet", "--out", str(tmp_path / "second")).out.decode()
    assert f"{errors['learned_prior']['ratio']:.2f}" in second
    assert words_of(second) == words_of(shown_demo())
    for name in ("learned_prior-releases.jsonl", "learned_prior-estimates.jsonl"):
        assert (tmp_path / "first" / name).read_bytes() == (tmp_path / "second" / name).read_bytes()


def test_the_rows_of_the_readme_are_those_of_the_rule() -> None:
    """A hash of seed and name draws them, from the aircraft that are scored; a reader can repeat
    it."""
    stream, truth = hold_back_flights(read_flights(flights_file()))
    names, counts = np.unique(stream["tailnum"].to_pylist(), return_counts=True)
    assert names.tolist() == truth.agent.tolist()
    scored = names[(counts >= 20) & (truth.count >= 20)]
    drawn = sorted(scored, key=lambda name: sha256(f"0 {name}".encode()).hexdigest())[:5]
    assert sorted(re.findall(r"│ (N\w+) ", shown_demo())) == sorted(drawn)
    assert f"{len(scored):,} aircraft" in shown_demo()


@pytest.mark.full
def test_the_readme_shows_what_the_demo_prints(tmp_path: Path) -> None:
    printed = meanstream("demo", "--quiet", "--out", str(tmp_path / "demo")).out.decode()
    assert lines_of(printed) == lines_of(shown_demo())


@pytest.mark.full
def test_a_whole_year_is_learned_from(tmp_path: Path) -> None:
    """The goal, as a mean over seeds: at most .6 of the squared error of learning alone; better
    than the tests."""
    errors = [
        run_demo(tmp_path / str(seed), seed)["squared_error_relative_to_alone"] for seed in range(4)
    ]
    assert np.mean([error["learned_prior"]["ratio"] for error in errors]) < 0.6
    for error in errors:
        assert error["learned_prior"]["ratio"] < error["tests"]["ratio"]
        assert error["learned_prior"]["aircraft"] > 2000
        assert error["learned_prior"]["coverage"] > 0.9


def test_an_impossible_place_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert "out must be a folder" in meanstream("demo", "--out", str(tmp_path / "file")).message
    assert "epsilon must be positive" in meanstream("demo", "--epsilon", "0").message


def test_the_flights_are_written_over_nothing_else(tmp_path: Path) -> None:
    place = tmp_path / "flights.csv"
    for _ in range(2):
        assert meanstream("demo", "flights", str(place)).code == 0
        with place.open() as file:
            assert {"tailnum", "dep_delay", "time_hour"} < set(file.readline().strip().split(","))
            assert sum(1 for _ in file) == 336_776
    told = meanstream("demo", "flights", str(place))
    assert told.out.decode().startswith(f"{place}: 336,776 flights\n")
    told = meanstream("demo", "flights", str(place), "--json")
    found = json.loads(told.out)
    assert (found["file"], found["flights"]) == (str(place), 336_776)
    assert {"tailnum", "dep_delay", "time_hour"} < set(found["columns"])
    place.write_text("mine\n")
    said = meanstream("demo", "flights", str(place)).message
    assert said == f"file must be a new file or one that this command wrote, got {str(place)!r}"
    assert place.read_text() == "mine\n"
    assert meanstream("demo", "flights", str(tmp_path / "no" / "flights.csv")).code == 2
