"""Vectors in the engine of rounds: columns to coordinates, exact sums of features, lists as
answers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from meanstream.lab.papers.kent.density import DensityFunction
from meanstream.operators.noise.fixed_point import FixedPoint
from meanstream.operators.noise.keyed import keyed_owner_words
from meanstream.operators.rounds.round_grids import UNIT
from meanstream.operators.rounds.round_records import Estimate, Public
from meanstream.streaming.crash import CrashPoint, Moment
from meanstream.streaming.events.event_columns import SampleColumns
from meanstream.streaming.events.round_events import WindowEstimate
from meanstream.streaming.metrics.rounds_metrics import RoundsMetrics
from meanstream.streaming.open_source import open_source
from meanstream.streaming.rounds.rounds_settings import RoundsSettings
from meanstream.streaming.rounds.summarize_users import UserSums, join_summaries, summarize
from meanstream.streaming.rounds.window_round import WindowRound, estimate_event_line
from meanstream.streaming.rounds.window_widths import MICROS, Window
from meanstream.streaming.sources.mapping import ColumnMapping
from meanstream.streaming.sources.source_protocol import Source
from tests.streaming.rounds.test_rounds_crash import DieAt, Died
from tests.streaming.support.rounds_world import DAY, SECRET, RoundsWorld, rounds_settings
from tests.streaming.support.scripted_source import ScriptedSource

NAMES = ("x", "y", "z")
LOWER, UPPER = (0.0, -5.0, 100.0), (10.0, 5.0, 400.0)


def vectors(
    n: int = 600, users: int = 40, days: float = 3.0, seed: int = 5
) -> list[tuple[str, list[float], float]]:
    rng = np.random.default_rng(seed)
    times = np.sort(rng.uniform(0, days * DAY, n))
    values = rng.normal((6.0, 1.0, 250.0), (2.0, 1.0, 60.0), (n, 3)).round(3)
    who = rng.permutation(np.arange(n) % users)  # as many samples of each
    return [
        (f"user {u}", v, t)
        for u, v, t in zip(who.tolist(), values.tolist(), times.tolist(), strict=True)
    ]


def write(folder: Path, kind: str, rows: list[tuple[str, list[float], float]]) -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / f"vectors.{kind}"
    if kind == "csv":
        lines = ["who,z,t,x,y", *(f"{u},{v[2]!r},{t!r},{v[0]!r},{v[1]!r}" for u, v, t in rows)]
        path.write_text("\n".join(lines) + "\n")
    elif kind == "jsonl":
        texts = [
            json.dumps({"who": u, **dict(zip(NAMES, v, strict=True)), "t": t}) for u, v, t in rows
        ]
        path.write_text("\n".join(texts) + "\n")
    else:
        columns = {"who": [u for u, *_ in rows], "t": [t for *_, t in rows]}
        parquet.write_table(
            pa.table({**columns, **{n: [v[i] for _, v, _ in rows] for i, n in enumerate(NAMES)}}),
            path,
        )
    return path


def source(path: Path, names: tuple[str, ...] = NAMES) -> Source:
    return open_source(str(path), ColumnMapping(agent="who", values=names, time="t"))


def vector_settings(**changes: Any) -> RoundsSettings:
    named = {
        "estimator": "kent.linf",
        "values": NAMES,
        "lower": LOWER,
        "upper": UPPER,
        "sizes": "point:5",
    }
    return rounds_settings(**{**named, **changes})


# -- the engine ----------------------------------------------------------------------------------------------


def by_hand(world: RoundsWorld, rows: list[Any], day: int) -> dict[str, Any]:
    """The round of a day in memory."""
    inside = [row for row in rows if day * DAY <= row[2] < (day + 1) * DAY]
    names = sorted({name for name, *_ in inside})
    user = np.array([names.index(name) for name, *_ in inside])
    grid = world.settings.grid
    sums = summarize(
        user, np.array([v for _, v, _ in inside]), np.array([t for *_, t in inside]), grid
    )
    window = Window(day * 86_400 * MICROS, (day + 1) * 86_400 * MICROS)
    this = WindowRound(world.settings, window, users=len(names))
    words = keyed_owner_words(names)
    public: Public = {}
    for stage in this.stages:
        mine = this.stage_of(words) == stage
        reports = this.reports(
            SECRET.encode(), stage, public, sums.take(mine).summaries(words[mine], grid)
        )
        found = this.decode(stage, public, this.tally(stage, public, reports)[0])
        if isinstance(found, Estimate):
            answer: dict[str, Any] = json.loads(
                estimate_event_line(this, found, len(names)).lines[0]
            )
            return answer
        public = found
    raise AssertionError


@pytest.mark.parametrize(
    ("estimator", "options"),
    [
        ("kent.linf", {}),
        ("kent.l2", {}),
        ("kent.l2", {"radius": 1.5}),
        ("kent.sparse_select", {"sparsity": 1}),
        ("kent.sparse_threshold", {"sparsity": 2}),
    ],
)
def test_a_vector_is_answered_coordinate_by_coordinate(
    estimator: str, options: dict[str, Any], tmp_path: Path
) -> None:
    rows = vectors()
    world = RoundsWorld(
        tmp_path / "world", vector_settings(estimator=estimator, options=options, epsilon=6.0)
    )
    world.run(source(write(tmp_path, "csv", rows)))
    answers = world.events("means")
    assert len(answers) == 3
    for day, (line, answer) in enumerate(zip(world.lines("means"), answers, strict=True)):
        WindowEstimate.model_validate_json(line, strict=True)
        assert answer == by_hand(world, rows, day)
        assert answer["values"] == list(NAMES)
        assert {len(answer[name]) for name in ("value", "interval", "stderr", "unclipped")} == {3}
        for low, high, value, (lower, upper) in zip(
            LOWER, UPPER, answer["value"], answer["interval"], strict=True
        ):
            assert low <= lower <= value <= upper <= high
        assert "components" not in answer
        assert "function" not in answer


def test_many_users_are_answered_within_the_interval(tmp_path: Path) -> None:
    """3000 users of one law: beyond 5 standard errors once in 10**5 data sets; this one is
    fixed."""
    rows = vectors(12_000, users=3000, days=1.0)
    world = RoundsWorld(
        tmp_path / "world", vector_settings(epsilon=4.0, estimator="kent.l2", sizes="point:4")
    )
    world.options = type(world.options)(batch_size=5000)
    world.run(source(write(tmp_path, "csv", rows)))
    (answer,) = world.events("means")
    error = np.abs(np.array(answer["value"]) - (6.0, 1.0, 250.0))
    assert np.all(error < 5 * np.array(answer["stderr"]))
    assert np.all(np.array(answer["stderr"]) < 0.1 * (np.array(UPPER) - LOWER))


def test_a_density_and_a_mixture_are_plain_data(tmp_path: Path) -> None:
    rows = [(u, [v[0]], t) for u, v, t in vectors(3000, users=300)]
    path = tmp_path / "one.csv"
    path.write_text("\n".join(["who,x,t", *(f"{u},{v[0]!r},{t!r}" for u, v, t in rows)]) + "\n")
    mapping = ColumnMapping(agent="who", value="x", time="t")
    given: dict[str, Any] = {"sizes": "point:3", "epsilon": 4.0, "options": {"terms": 5}}
    density = RoundsWorld(tmp_path / "density", rounds_settings(estimator="kent.density", **given))
    density.run(open_source(str(path), mapping))
    for line in density.lines("means"):
        answer = WindowEstimate.model_validate_json(line, strict=True)
        assert answer.function is not None
        function = DensityFunction.of(answer.function)
        assert (function.lower, function.upper) == (0.0, 10.0)
        x = np.linspace(0, 10, 2001)
        assert np.trapezoid(function.evaluate(x), x) == pytest.approx(1.0, abs=1e-3)
        assert list(function.coefficients) == answer.value
        assert answer.values is None
    given |= {"options": {"components": 2, "half_width": 0.1}}
    mixture = RoundsWorld(tmp_path / "mixture", rounds_settings(estimator="kent.mixture", **given))
    mixture.run(open_source(str(path), mapping))
    for line in mixture.lines("means"):
        answer = WindowEstimate.model_validate_json(line, strict=True)
        assert answer.components is not None
        assert sum(part["weight"] for part in answer.components) == pytest.approx(1.0)
        assert len(answer.components) == len(answer.value) == 2  # type: ignore[arg-type]


def test_two_sides_and_a_death_give_the_same_bytes(tmp_path: Path) -> None:
    path = write(tmp_path, "csv", vectors())
    settings = vector_settings(users=40, epsilon=6.0)
    whole = RoundsWorld(tmp_path / "whole", settings)
    whole.run(source(path))
    died = RoundsWorld(tmp_path / "died", settings)
    for point in (CrashPoint.SAVE_SNAPSHOT, CrashPoint.COMMIT, CrashPoint.WRITE_ESTIMATES):
        for moment in Moment:
            with pytest.raises(Died):
                died.run(source(path), crash=DieAt(point, moment, 2))
    died.run(source(path))
    assert died.files()["means"] == whole.files()["means"]
    assert died.files()["reports"] == whole.files()["reports"]
    split = RoundsWorld(tmp_path / "split", settings)
    for _ in whole.engine._runner._settings.estimator_for(40).rounds:
        split.run(source(path), stages=split.folder / "stages.jsonl")
        split.tally(split.folder / "reports.jsonl")
    assert split.lines("means") == whole.lines("means")


def test_few_users_are_answered_as_if_by_the_least_number_that_a_design_needs(
    tmp_path: Path,
) -> None:
    """Three users cannot make six folds: the answer is honest, and that is wide."""
    rows = [(f"user {i}", [5.0, 0.0, 200.0], 10.0 + i) for i in range(3)]
    world = RoundsWorld(tmp_path / "few", vector_settings())
    world.run(source(write(tmp_path, "csv", rows)))
    (answer,) = world.events("means")
    assert answer["users"] == 3
    assert world.settings.design_users(3) >= 6
    assert world.settings.design_users(
        world.settings.design_users(3)
    ) == world.settings.design_users(3)
    assert world.settings.design_users(1234) == 1200


# -- settings ------------------------------------------------------------------------------------------------


def test_names_keys_and_stores_of_one_value_are_as_they_were_before_vectors() -> None:
    """The protocol's digest names rounds and keys noise; this one was written down before there
    were vectors."""
    plain = RoundsSettings(
        name="rounds", lower=0, upper=10, epsilon=2.0, window="1d", estimator="one_shot"
    )
    assert "values" not in plain.protocol()
    assert plain.digest() == "2f46384a"  # of 0.0 and 10.0, too: integers are the same key
    assert isinstance(plain.grid, FixedPoint)
    vector = vector_settings()
    assert RoundsSettings(**json.loads(json.dumps(vector.plain()))) == vector


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"values": None}, "values must be given for kent.linf: the columns of a vector"),
        (
            {"estimator": "one_shot"},
            "values must be left out for one_shot, which takes one --value",
        ),
        ({"values": ("x", "x", "y")}, "values must be different columns"),
        ({"lower": (0.0, 1.0)}, "lower must be one number, or one for each of 3 values"),
        ({"upper": (10.0, -6.0, 400.0)}, r"lower must be below upper \(-6.0\), got -5.0"),
        ({"options": {"dimension": 4}}, "dimension must be left out: values say it"),
        (
            {"estimator": "kent.density", "values": None, "lower": 0, "upper": 1},
            "users must be given for kent.density",
        ),
        (
            {
                "estimator": "kent.density",
                "values": None,
                "lower": 0,
                "upper": 1,
                "users": 100,
                "between_users": 0.1,
            },
            "between_users must be left out for kent.density",
        ),
        ({"options": {"sparsity": 4}}, "kent.linf takes no option 'sparsity'"),
    ],
)
def test_what_does_not_fit_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        vector_settings(**changes).estimator_for(100)


def test_columns_of_a_batch_are_selected_by_sample() -> None:
    value = np.arange(6.0).reshape(3, 2)
    columns = SampleColumns(["a"], np.zeros(3, np.int64), value, np.zeros(3), None, np.arange(3))
    assert columns.take(np.array([2, 0])).value.tolist() == [[4.0, 5.0], [0.0, 1.0]]
    assert UserSums(
        **join_summaries([summarize(columns.agent, value, columns.time, UNIT)]).columns()
    ).total.shape == (
        1,
        2,
    )


def test_metrics_show_no_number_of_a_vector(tmp_path: Path) -> None:
    """A vector has no one value; that of one mean beside it has."""
    rows = vectors(60)
    sources: dict[str, tuple[RoundsSettings, Source]] = {
        "vector": (vector_settings(), source(write(tmp_path, "csv", rows))),
        "one": (
            rounds_settings(estimator="one_shot"),
            ScriptedSource([(u, v[0], t) for u, v, t in rows]),
        ),
    }
    shown = {}
    for name, (chosen, samples) in sources.items():
        world = RoundsWorld(tmp_path / name, chosen)
        stats = world.run(samples)
        shown[name] = RoundsMetrics(settings=chosen, health=world.engine.health)._own(stats)
    assert {"rounds_value", "rounds_half_width"} <= set(shown["one"])
    assert not {"rounds_value", "rounds_half_width", "rounds_lower"} & set(shown["vector"])
    assert shown["vector"]["rounds_window_users"] > 0
