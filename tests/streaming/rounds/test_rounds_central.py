"""A trusted curator in the engine: noise once, after adding up; everybody is charged; a death
changes no byte."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from meanstream.operators.noise.keyed import KeyedNoise, keyed_owner_words
from meanstream.operators.rounds.central_rounds import ReleaseWords, run_central
from meanstream.operators.rounds.round_protocol import assign_protocol_stages
from meanstream.operators.rounds.round_records import Estimate, Public, Summaries, Tally
from meanstream.streaming.crash import CrashPoint, Moment
from meanstream.streaming.events.base import PublicEvent
from meanstream.streaming.events.wire import EVENTS
from meanstream.streaming.rounds import round_runner as runner
from meanstream.streaming.rounds import window_round as curator
from meanstream.streaming.rounds.round_runner import RoundRunner
from meanstream.streaming.rounds.rounds_budget import rounds_budgets
from meanstream.streaming.rounds.rounds_statistician import statistician_identity
from meanstream.streaming.rounds.summarize_users import summarize
from meanstream.streaming.rounds.window_round import WindowRound, curator_noise_once, curator_sum
from meanstream.streaming.rounds.window_widths import MICROS, Window
from meanstream.streaming.store.store_audit import audit_ledger
from tests.streaming.rounds.test_rounds_crash import POINTS, DieAt, Died
from tests.streaming.support.rounds_world import (
    SECRET,
    RoundsWorld,
    Spoiled,
    rounds_settings,
    samples,
)
from tests.streaming.support.scripted_source import ScriptedSource
from tests.streaming.support.stored_rows import stored_rows

EVERY = ("cummings.ratio", "cummings.known_sizes", "cummings.private_sizes", "cummings.ideal")


@pytest.fixture
def curated(tmp_path: Path) -> Callable[..., RoundsWorld]:
    def make(name: str = "world", **changes: Any) -> RoundsWorld:
        return RoundsWorld(
            tmp_path / name, rounds_settings(**{"estimator": "cummings.ratio", **changes})
        )

    return make


def stream() -> list[tuple[str, float, float]]:
    """Sixty users over four days."""
    return samples(900, users=60)


def ledger(folder: Path) -> list[Any]:
    return stored_rows(folder / "s.db")


def of_a_day(world: RoundsWorld, day: int) -> tuple[WindowRound, Any]:
    window = Window(day * 86_400 * MICROS, (day + 1) * 86_400 * MICROS)
    inside = [s for s in stream() if window.start <= s[2] * MICROS < window.end]
    names = sorted({name for name, *_ in inside})
    user = np.array([names.index(name) for name, *_ in inside])
    value, time = (np.array([s[i] for s in inside]) for i in (1, 2))
    grid = world.settings.grid
    return WindowRound(world.settings, window, len(names)), summarize(
        user, value, time, grid
    ).summaries(keyed_owner_words(names), grid)


@pytest.mark.parametrize("name", EVERY)
def test_each_window_is_answered_as_in_memory_and_everybody_is_charged(
    name: str, curated: Any
) -> None:
    """The same keyed noise in the loop of the operators, `run_central`, gives the same answer."""
    world = curated(estimator=name)
    stats = world.run(Spoiled(stream()))
    assert (stats.estimates, stats.rounds, stats.open_windows) == (4, 4, 0)
    answers = world.events("means")
    for day, answer in enumerate(answers):
        this, summaries = of_a_day(world, day)
        public: Public = {}
        words = []
        for release in this.stages:  # the words need the sums, which need what was released before
            tally = curator_sum(this, release, public, summaries)
            words.append(
                ReleaseWords(
                    this.stage_noise(SECRET.encode(), release, public), this.id, release, tally
                )
            )
            found = curator_noise_once(this, SECRET.encode(), release, public, tally)
            public = {} if isinstance(found, Estimate) else found
        cohort = assign_protocol_stages(this.estimator.shares, summaries.user, this.id.encode())
        expected = run_central(this.estimator, summaries, cohort, words)  # type: ignore[arg-type]
        assert answer["value"] == float(expected.in_unit(0, 10).value)
        assert (answer["trust"], answer["method"], answer["users"]) == (
            "central",
            name,
            len(summaries),
        )
        assert answer["delta"] == world.settings.delta == (1e-6 if "private" in name else 0)
        line = world.lines("means")[day]
        charges = [c for c in world.events("reports") if c["round_id"] == answer["round_id"]]
        assert len({c["user"] for c in charges}) == len(charges) == answer["users"]
        assert {c["released"] for c in charges} == {hashlib.sha256(line).hexdigest()}
        assert {(c["epsilon"], c["delta"]) for c in charges} == {(2.0, answer["delta"])}
    for role, kind in {
        "reports": "charge",
        "means": "window_estimate",
        "stages": "stage_result",
    }.items():
        assert issubclass(EVENTS[kind], PublicEvent)
        for line in world.lines(role):
            EVENTS[kind].model_validate_json(line, strict=True)
    assert (
        audit_ledger(world.folder / "s.db").rows
        == sum(a["users"] for a in answers)
        == stats.releases
    )


@pytest.mark.parametrize("moment", Moment)
@pytest.mark.parametrize("point", POINTS)
def test_killed_at_every_step_the_answers_and_charges_are_the_same_bytes(
    point: CrashPoint, moment: Moment, curated: Any
) -> None:
    # A budget of three rounds: the fourth day refuses everybody, which is an answer about nobody.
    reference = curated("reference", user_budget=6.0)
    reference.run(Spoiled(samples()))
    assert all(reference.files().values())
    assert [a["users"] for a in reference.events("means")] == [12, 12, 12, 0]
    assert reference.events("means")[3]["interval"] == [0.0, 10.0]
    for visit in (1, 3):
        world = curated(f"killed-{visit}", user_budget=6.0)
        died = False
        try:
            world.run(Spoiled(samples()), crash=DieAt(point, moment, visit))
        except Died:
            died = True
            world.run(Spoiled(samples()))
        assert died or (point is CrashPoint.MARK_DELIVERY and visit == 3)
        assert world.files() == reference.files()
        assert ledger(world.folder) == ledger(reference.folder)


def test_everybody_was_charged_before_the_answer_is_written(
    curated: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Known bad beside it: a runner that charges one user less is found."""
    assert len(set(answers_paid_for(curated()))) == 4
    original = RoundRunner._charge

    def forgetful(self: RoundRunner, rows: Any, *columns: Any) -> None:
        user, version, window, lines = columns
        original(self, rows, user[1:], version[1:], window, lines[1:])

    monkeypatch.setattr(RoundRunner, "_charge", forgetful)
    with pytest.raises(AssertionError, match="paid"):
        answers_paid_for(curated("forgetful"))


def answers_paid_for(world: RoundsWorld) -> list[str]:
    """Answers that were written, after it was checked that everybody had been charged."""
    compared = []

    def charged(point: CrashPoint, moment: Moment) -> None:
        if (point, moment) == (CrashPoint.WRITE_ESTIMATES, Moment.AFTER):
            paid = [json.loads(row[6]) for row in ledger(world.folder)]
            for answer in world.events("means"):
                paying = sum(row["round_id"] == answer["round_id"] for row in paid)
                assert paying == answer["users"], f"{paying} paid"
                compared.append(answer["round_id"])

    world.run(Spoiled(stream()), crash=charged)
    return compared


def test_noise_is_drawn_once_per_release_after_adding_up(
    curated: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many batches: one draw of words for each release of each window; none while rows are
    made or added.

    Known bad beside it: sums that are noised while they are added up draw more than once.
    """
    drawn = []

    class Counted(ReleaseWords):
        def __init__(self, noise: KeyedNoise, round_id: str, stage: int, tally: Tally) -> None:
            super().__init__(noise, round_id, stage, tally)
            drawn.append((round_id, stage))

    monkeypatch.setattr(curator, "ReleaseWords", Counted)
    world = curated()
    world.run(ScriptedSource(stream()))
    assert len(drawn) == len(set(drawn)) == 4 * 5
    drawn.clear()

    def noisy(this: WindowRound, release: int, public: Public, summaries: Summaries) -> Tally:
        tally = curator_sum(this, release, public, summaries)
        Counted(this.stage_noise(SECRET.encode(), release, public), this.id, release, tally)
        return tally

    monkeypatch.setattr(runner, "curator_sum", noisy)
    curated("noisy").run(ScriptedSource(stream()))
    assert len(drawn) > len(set(drawn))


def test_other_sums_another_secret_and_another_epsilon_have_other_noise(curated: Any) -> None:
    """The noise itself is compared: twice the same input, then one user's sample moved by one grid
    point."""
    this, summaries = of_a_day(curated(), 0)
    key, last = SECRET.encode(), 4
    public: Public = {}
    for release in range(last):
        public = curator_noise_once(
            this, key, release, public, curator_sum(this, release, public, summaries)
        )  # type: ignore[assignment]
    tally = curator_sum(this, last, public, summaries)

    def bits(which: WindowRound, tally: Tally, secret: bytes = key) -> tuple[int, ...]:
        words = ReleaseWords(which.stage_noise(secret, last, public), which.id, last, tally)
        return tuple(words(0)[0].tolist())

    moved = Tally(tally.n, (tally.sums[0] + 1, *tally.sums[1:]))
    other = WindowRound(curated(epsilon=1.0).settings, this.window, this.users)
    tomorrow = WindowRound(
        this.settings, Window(this.window.end, this.window.end + 86_400 * MICROS), this.users
    )
    assert bits(this, tally) == bits(this, tally)
    found = {
        bits(this, tally),
        bits(this, moved),
        bits(other, tally),
        bits(tomorrow, tally),
        bits(this, tally, b"another secret, as long"),
    }
    assert len(found) == 5


def test_parts_add_up_to_the_whole_in_any_order(curated: Any) -> None:
    this, summaries = of_a_day(curated(estimator="cummings.known_sizes"), 1)
    public: Public = {}
    for release in this.stages:
        whole = curator_sum(this, release, public, summaries)
        for cuts in ([7], [1, 2, 30]):
            parts = np.split(np.random.default_rng(3).permutation(len(summaries)), cuts)
            total = Tally()
            for part in parts:
                total = total + curator_sum(this, release, public, summaries.take(part))
            assert total == whole
        found = curator_noise_once(this, SECRET.encode(), release, public, whole)
        public = {} if isinstance(found, Estimate) else found


def test_budget_and_a_lost_state(curated: Any) -> None:
    """The same samples again cost again, and the same noise comes again: nothing new is learned."""
    world = curated(user_budget=16.0, estimator="cummings.private_sizes")
    world.run(ScriptedSource(stream()))
    first, charged = world.lines("means"), len(world.lines("reports"))
    told = rounds_budgets(world.folder / "s.db")
    assert (told.summary.trust, told.summary.delta, told.summary.spent_max) == (
        "central",
        1e-6,
        8.0,
    )
    assert all(row.delta == pytest.approx(row.reports * 1e-6) for row in told.users)
    world.lose_state()
    world.run(ScriptedSource(stream()))
    assert world.lines("means") == first * 2
    assert rounds_budgets(world.folder / "s.db").summary.spent_max == 16.0
    world.lose_state()
    stats = world.run(ScriptedSource(stream()))
    assert stats.over_budget > 0
    assert stats.releases + stats.over_budget == charged


def test_two_sides_are_refused_with_the_reason(curated: Any, tmp_path: Path) -> None:
    world = curated()
    with pytest.raises(
        ValueError, match="estimator must be local here: a trusted curator sees every sample"
    ):
        world.run(ScriptedSource(stream()), stages=tmp_path / "stages.jsonl")
    with pytest.raises(
        ValueError, match="estimator must be local here: a trusted curator sees every sample"
    ):
        statistician_identity(world.settings)
    this, summaries = of_a_day(world, 0)
    with pytest.raises(ValueError, match="be one of local privacy here"):
        this.reports(SECRET.encode(), 0, {}, summaries)
    local = WindowRound(rounds_settings(estimator="one_shot"), this.window, 10)
    with pytest.raises(ValueError, match="be one of central trust here"):
        curator_sum(local, 0, {}, summaries)


def test_a_users_values_are_in_no_output(curated: Any) -> None:
    """Of a neighbor whose samples are all at the other end only the noised sums differ."""
    marked = [
        ("user 3", 9.87654321, t) if name == "user 3" else (name, v, t) for name, v, t in stream()
    ]
    one, two = curated("one"), curated("two")
    one.run(ScriptedSource(marked))
    two.run(
        ScriptedSource([("user 3", 0.0, t) if n == "user 3" else (n, v, t) for n, v, t in marked])
    )
    for field in ("round_id", "users", "epsilon", "start"):
        assert [a[field] for a in one.events("means")] == [a[field] for a in two.events("means")]
    assert one.lines("means") != two.lines("means")
    point = str(int(one.settings.grid.encode(np.array([9.87654321]))[0]))
    for data in one.files().values():
        assert b"9.8765" not in data
        assert point.encode() not in data


def test_a_budget_is_told_when_the_file_of_sizes_is_gone(curated: Any, tmp_path: Path) -> None:
    law = tmp_path / "law.csv"
    law.write_text("who\na\na\nb\n")
    world = curated(estimator="cummings.private_sizes", sizes=f"{law}:who", options={"delta": 1e-7})
    world.run(ScriptedSource(stream()))
    law.unlink()
    assert rounds_budgets(world.folder / "s.db").summary.delta == 1e-7


@pytest.mark.parametrize(
    ("estimator", "said"),
    [
        ("one_shot", "All that one user sends within a window is protected together"),
        ("central.mean", "All that one user sends within a window is protected together"),
        ("cummings.ratio", "All that one user sends within a window is protected together"),
        (
            "cummings.known_sizes",
            "The values that one user sends within a window are protected together, their number",
        ),
        ("item", "Each single sample is protected; a user with many samples"),
    ],
)
def test_what_epsilon_covers_is_said_of_each_estimator(estimator: str, said: str) -> None:
    assert rounds_settings(estimator=estimator, users=None, sizes=None).protected.startswith(said)
