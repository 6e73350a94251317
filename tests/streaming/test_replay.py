"""A replay counts records that were not used, once each, whatever happens meanwhile, and changes nothing else."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from streaming.columns import Batch
from streaming.crash import CrashHook, CrashPoint, Moment, no_crash
from streaming.dead_letters import DeadLetters, read_dead_letters, still_unused
from streaming.deployment import open_deployment
from streaming.engine import Engine
from streaming.mapping import ColumnMapping
from streaming.replay import Replay, prepare_replay
from streaming.sinks.group import Sinks
from streaming.sinks.jsonl import JsonlSink
from streaming.sinks.sink import Trust
from streaming.sources.again import Opened, reopening
from streaming.sources.open import open_source
from streaming.stats import EngineStats
from streaming.store.store import Store
from tests.streaming.dying import Died

FIRST = ColumnMapping(id="id")
MENDED = ColumnMapping(value="amount", time="when", id="id")
BAD_TIME, BAD_VALUE, LATE, TWICE = 20, 40, 60, 80
"""Lines of the file that are not good under the first mapping; the last one is a copy under any."""


def row(i: int, *, value: object = None, time: object = None, copy_of: object = None) -> str:
    """Write the record of line i: a value and a time that may be bad, and once more what they should be."""
    now = 1000 + i
    v, t = (i % 7 if value is None else value), (now if time is None else time)
    return f"agent {i % 3},{v},{t},id {i if copy_of is None else copy_of},{i % 7},{now}"


def write(path: Path, lines: Iterable[str]) -> Path:
    path.write_text("agent,value,time,id,amount,when\n" + "\n".join(lines) + "\n")
    return path


def spoiled_lines(rows: int = 120) -> list[str]:
    lines = {i: row(i) for i in range(2, rows + 2)}
    lines[BAD_TIME] = row(BAD_TIME, time="soon")
    lines[BAD_VALUE] = row(BAD_VALUE, value="7.0314159x")
    lines[LATE] = row(LATE, time=1010)
    lines[TWICE] = row(TWICE, copy_of=TWICE - 1)
    return list(lines.values())


def all_bad_times(rows: int = 100) -> list[str]:
    return [row(i, time="soon") for i in range(2, rows + 2)]


@dataclass
class Deployment:
    """A file, and a store that was filled from it."""

    world: Any
    path: Path

    def first_run(self, mapping: ColumnMapping = FIRST, *, sort: bool = False, **more: Any) -> EngineStats:
        stats: EngineStats = self.world.run(open_source(str(self.path), mapping, sort=sort), **more)
        return stats

    def letters(self, *reasons: str) -> DeadLetters:
        return read_dead_letters(str(self.world.folder / "dead_letters.jsonl")).of(reasons=reasons)

    def replay(
        self,
        letters: DeadLetters | None = None,
        *,
        mapping: ColumnMapping = MENDED,
        crash: CrashHook = no_crash,
        max_future: float = 86_400.0,
        lateness: float = 3.0,
        batch_size: int = 16,
        out_of_bounds: Any = "clip",
    ) -> tuple[EngineStats, Replay]:
        """One life of a process that replays."""
        world = self.world
        found = open_deployment(world.folder / "s.db", world.settings, environment={"MEANSTREAM_SECRET": world.secret})
        roles = {"releases", "dead_letters", "notices", "population"}
        sinks = Sinks(
            estimates=JsonlSink(world.folder / "estimates.jsonl", trust=Trust.PRIVATE),
            **{role: JsonlSink(world.folder / f"{role}.jsonl", trust=Trust.PUBLIC) for role in roles},
        )
        try:
            replayed = prepare_replay(
                found.store,
                self.path.name,
                reopening(str(self.path), mapping, id_key=found.id_key),
                self.letters() if letters is None else letters,
            )
            engine = Engine(
                source=replayed.source,
                settings=world.settings,
                noise=found.noise,
                store=found.store,
                sinks=sinks,
                options=replace(
                    world.options,
                    late="accept",
                    max_future=max_future,
                    allowed_lateness=lateness,
                    batch_size=batch_size,
                    out_of_bounds=out_of_bounds,
                ),
                unused=replayed.records,
                clock=world.clock,
                crash=crash,
            )
            return engine.run(replayed.done), replayed
        finally:
            sinks.close()
            found.store.close()

    def unused(self) -> list[int]:
        store = Store.read(self.world.folder / "s.db")
        try:
            return still_unused(self.letters(), store).position.tolist()
        finally:
            store.close()

    def totals(self) -> dict[str, tuple[int, float]]:
        """Each agent's number and mean of samples, as its newest estimate tells."""
        return {e["agent"]: (e["n"], round(e["local"], 9)) for e in self.world.events("estimates")}

    def ledger(self) -> list[Any]:
        connection = sqlite3.connect(self.world.folder / "s.db")
        try:
            query = "SELECT agent, release_index, input_version, output FROM ledger ORDER BY seq"
            return connection.execute(query).fetchall()
        finally:
            connection.close()


def stopping_after(turns: int) -> Callable[[], bool]:
    left = iter([False] * turns)
    return lambda: next(left, True)


@pytest.fixture
def spoiled(new_world: Callable[[str], Any], tmp_path: Path) -> Deployment:
    deployment = Deployment(new_world("spoiled"), write(tmp_path / "x.csv", spoiled_lines()))
    stats = deployment.first_run()
    assert stats.rejected == Counter(bad_time=1, bad_value=1, late=1, duplicate=1)
    return deployment


@pytest.fixture
def whole(new_world: Callable[[str], Any], spoiled: Deployment) -> Deployment:
    """A run where the records had been good."""
    deployment = Deployment(new_world("whole"), spoiled.path)
    assert deployment.first_run(MENDED).rejected == Counter(duplicate=1)
    return deployment


def test_records_that_are_good_now_count_as_if_they_had_been_good(spoiled: Deployment, whole: Deployment) -> None:
    before = spoiled.ledger()
    assert spoiled.unused() == [BAD_TIME, BAD_VALUE, LATE]
    stats, replayed = spoiled.replay()
    assert (replayed.letters, replayed.chosen) == (4, 3)
    assert (stats.events, stats.accepted, stats.rejected) == (3, 3, Counter())
    assert spoiled.totals() == whole.totals()
    assert spoiled.unused() == []
    after = spoiled.ledger()
    assert after[: len(before)] == before
    assert len({(agent, index) for agent, index, *_ in after}) == len(after)
    assert len({agent for agent, *_ in after[len(before) :]}) == len({BAD_TIME % 3, BAD_VALUE % 3, LATE % 3})


def test_what_fails_again_stays_unused_and_a_later_replay_takes_it_up(spoiled: Deployment, whole: Deployment) -> None:
    stats, _ = spoiled.replay(mapping=FIRST)
    assert (stats.accepted, stats.rejected) == (1, Counter(bad_time=1, bad_value=1))  # the late one counts from now on
    totals, ledger = spoiled.totals(), spoiled.ledger()
    assert spoiled.unused() == [BAD_TIME, BAD_VALUE]
    assert len(spoiled.world.lines("dead_letters")) == 6
    assert len(spoiled.letters()) == 4
    stats, replayed = spoiled.replay(mapping=FIRST)
    assert (replayed.chosen, stats.accepted, stats.releases) == (2, 0, 0)
    assert (spoiled.totals(), spoiled.ledger()) == (totals, ledger)
    stats, replayed = spoiled.replay()
    assert (replayed.chosen, stats.accepted) == (2, 2)
    assert spoiled.totals() == whole.totals()
    ledger = spoiled.ledger()
    stats, replayed = spoiled.replay()
    assert (replayed.chosen, stats.events, stats.commits) == (0, 0, 0)
    assert spoiled.ledger() == ledger


def test_reasons_choose(spoiled: Deployment) -> None:
    _, replayed = spoiled.replay(spoiled.letters("late"))
    assert replayed.chosen == 1
    assert spoiled.unused() == [BAD_TIME, BAD_VALUE]


POINTS = [
    (point, moment)
    for point in CrashPoint
    for moment in Moment
    if point not in (CrashPoint.PRODUCE, CrashPoint.SEND_MARKER, CrashPoint.COMMIT_TRANSACTION)
]


@pytest.mark.parametrize(("point", "moment"), POINTS)
def test_killed_anywhere_it_counts_each_record_once(
    point: CrashPoint, moment: Moment, new_world: Callable[[str], Any], tmp_path: Path
) -> None:
    """The replay is of many batches, and dies in its first, second or third."""
    path = write(tmp_path / "x.csv", all_bad_times())
    for visit in (1, 2, 3):
        deployment = Deployment(new_world(f"killed-{visit}"), path)
        deployment.first_run()
        assert deployment.unused() == list(range(2, 102))
        left = [visit]

        def die(at: CrashPoint, side: Moment, left: list[int] = left) -> None:
            if (at, side) == (point, moment):
                left[0] -= 1
                if not left[0]:
                    raise Died

        try:
            deployment.replay(crash=die)
        except Died:
            pass
        else:
            assert point is CrashPoint.MARK_DELIVERY, "visited at the start and at the end only"
        deployment.replay()
        assert deployment.unused() == []
        values = {f"agent {a}": [i % 7 for i in range(2, 102) if i % 3 == a] for a in range(3)}
        assert deployment.totals() == {a: (len(v), round(sum(v) / len(v), 9)) for a, v in values.items()}
        ledger = deployment.ledger()
        assert len({(agent, index) for agent, index, *_ in ledger}) == len(ledger)
        assert sorted(deployment.world.lines("releases")) == sorted(output for *_, output in ledger)


def test_a_copy_of_a_sample_that_was_counted_long_ago_is_not_counted_again(
    new_world: Callable[[str], Any], tmp_path: Path
) -> None:
    """Its id was forgotten by the engine when event time had passed it: the source tells that it was used."""
    lines = [row(i) for i in range(2, 122)]
    lines += [lines[5], lines[6], row(900, time=1006), row(901, time=1006, copy_of=900)]
    deployment = Deployment(new_world("copies"), write(tmp_path / "x.csv", lines))
    assert deployment.first_run().rejected == Counter(late=4)
    stats, replayed = deployment.replay()
    assert (replayed.chosen, stats.accepted, stats.rejected) == (4, 1, Counter(duplicate=2))
    assert replayed.source.repeated == 1  # the second record of a new id waits until the first one was counted
    stats, replayed = deployment.replay()
    assert (replayed.chosen, stats.accepted, stats.rejected) == (1, 0, Counter(duplicate=1))
    assert deployment.unused() == []


def test_letters_of_records_that_this_store_has_used_or_not_read_are_not_replayed(
    spoiled: Deployment, new_world: Callable[[str], Any]
) -> None:
    """A forged letter must not make a sample count twice."""
    line = '{"reason":"late","source":"x.csv","partition":%d,"position":%d,"size":null,"schema_version":1}\n'
    forged = spoiled.world.folder / "forged.jsonl"
    forged.write_text("".join(line % at for at in ((0, 5), (0, 6), (0, 100_000), (1, LATE), (0, LATE))))
    totals = spoiled.totals()
    stats, replayed = spoiled.replay(read_dead_letters(str(forged)))
    assert (replayed.letters, replayed.chosen, stats.accepted) == (5, 1, 1)
    assert sum(n for n, _ in spoiled.totals().values()) == sum(n for n, _ in totals.values()) + 1


def test_a_stream_that_goes_on_is_not_ended_by_a_replay(
    new_world: Callable[[str], Any], spoiled: Deployment, whole: Deployment
) -> None:
    """Stopped half way, replayed, and run to the end: nothing that waited was pushed out, and so nothing is late."""
    deployment = Deployment(new_world("half"), spoiled.path)
    half = deployment.first_run(stop=stopping_after(4))
    assert half.rejected == Counter(bad_time=1, bad_value=1, late=1)
    estimates = deployment.world.lines("estimates")
    stats, replayed = deployment.replay()
    assert not replayed.ends
    assert stats.accepted == replayed.chosen == 3
    assert deployment.world.lines("estimates") == estimates
    rest = deployment.first_run()
    assert rest.rejected == Counter(duplicate=1)
    assert half.accepted + stats.accepted + rest.accepted == 119
    assert deployment.totals() == whole.totals()


def test_a_replay_that_was_killed_ends_the_stream_when_it_is_repeated(spoiled: Deployment) -> None:
    turns = [2]

    def die(point: CrashPoint, moment: Moment) -> None:
        if (point, moment) == (CrashPoint.COMMIT, Moment.BEFORE):
            turns[0] -= 1
            if not turns[0]:
                raise Died  # the samples are counted, the end is not

    with pytest.raises(Died):
        spoiled.replay(crash=die)
    assert spoiled.unused() == []
    stats, replayed = spoiled.replay()
    assert (replayed.chosen, stats.events, stats.estimates) == (0, 0, 3)
    assert stats.releases > 0


def test_what_was_too_early_or_out_of_bounds_counts_when_it_no_longer_is(
    new_world: Callable[[str], Any], tmp_path: Path
) -> None:
    lines = [row(i) for i in range(2, 50)]
    lines[10], lines[20] = row(12, time=4e9), row(22, value=77)
    deployment = Deployment(new_world("early"), write(tmp_path / "x.csv", lines))
    deployment.world.options = replace(deployment.world.options, out_of_bounds="reject")
    assert deployment.first_run().rejected == Counter(in_future=1, out_of_bounds=1)
    stats, _ = deployment.replay(mapping=FIRST, out_of_bounds="reject")
    assert (stats.accepted, stats.rejected) == (0, Counter(in_future=1, out_of_bounds=1))
    deployment.world.clock.set(4e9)
    stats, _ = deployment.replay(mapping=FIRST)
    assert (stats.accepted, stats.clipped, stats.rejected) == (2, 1, Counter())
    assert sum(n for n, _ in deployment.totals().values()) == 48


def test_a_source_that_the_store_has_not_read_is_refused(spoiled: Deployment) -> None:
    spoiled.path = spoiled.path.rename(spoiled.path.with_name("y.csv"))
    with pytest.raises(ValueError, match=r"source must be one that the store has read, got 'y.csv'; did you mean"):
        spoiled.replay()


@pytest.mark.parametrize("sort", [True, False])
def test_another_file_of_the_same_name_is_refused(sort: bool, new_world: Callable[[str], Any], tmp_path: Path) -> None:
    """Its records at the same places are others; also under a mapping by which it was not read."""
    deployment = Deployment(new_world("other"), write(tmp_path / "x.csv", spoiled_lines()))
    deployment.first_run(sort=sort)
    stats, _ = deployment.replay(deployment.letters("bad_time"))
    assert stats.accepted == 1
    write(deployment.path, all_bad_times())
    with pytest.raises(ValueError, match=r"source must be the file that this store was filled from, got another"):
        deployment.replay()
    assert BAD_VALUE in deployment.unused()


def test_records_that_are_gone_are_told_and_stay_unused(spoiled: Deployment) -> None:
    from streaming.sources.selected import SelectedSource

    source = SelectedSource(
        "x.csv",
        lambda at: Opened(open_source(str(spoiled.path), MENDED, sort=False)),
        np.array([BAD_TIME, 500, 501]),
        unused=np.array([BAD_TIME, 500, 501]),
        give=lambda at: None,
    )
    assert source.next_batch(10).samples.position.tolist() == [BAD_TIME]
    assert source.missing == 2


def test_the_position_of_the_source_stays_where_it_was(spoiled: Deployment) -> None:
    spoiled.replay()
    with spoiled.path.open("a") as file:
        file.write("\n".join(row(i) for i in range(122, 152)) + "\n")
    assert spoiled.first_run().events == 30


def test_the_note_of_unused_records_is_kept_in_pieces(
    new_world: Callable[[str], Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("streaming.unused.PIECE", 5)
    deployment = Deployment(new_world("pieces"), write(tmp_path / "x.csv", all_bad_times()))
    deployment.first_run(stop=stopping_after(3))
    deployment.first_run()
    assert deployment.unused() == list(range(2, 102))
    deployment.replay(deployment.letters().take(slice(10, 90)))
    assert deployment.unused() == [*range(2, 12), *range(92, 102)]


class Counting:
    """A source that says how often it was opened and closed."""

    def __init__(self, inner: Any, log: list[str]) -> None:
        self.inner, self.log = inner, log
        log.append("open")

    def next_batch(self, max_samples: int) -> Batch:
        batch: Batch = self.inner.next_batch(max_samples)
        return batch

    def close(self) -> None:
        self.log.append("close")
        self.inner.close()


@pytest.mark.parametrize(("ids", "times", "sort"), [("id", 2, True), (None, 1, True), (None, 1, False)])
def test_the_source_is_read_twice_only_to_compare_ids(ids: str | None, times: int, sort: bool, tmp_path: Path) -> None:
    from streaming.sources.selected import SelectedSource

    log: list[str] = []
    given: list[list[int]] = []
    mapping = ColumnMapping(id=ids)
    path = str(write(tmp_path / "x.csv", spoiled_lines()))
    source: Any = SelectedSource(
        "x.csv",
        lambda at: Opened(Counting(open_source(path, mapping, sort=False), log)),  # type: ignore[arg-type]
        np.array([LATE, BAD_TIME, 15]),
        unused=np.array([15, BAD_TIME, LATE]),
        sort=sort,
        give=lambda at: given.append(at.tolist()),
    )
    source.restore({"anything": 1})
    batches: Sequence[Batch] = [source.next_batch(1) for _ in range(3)]
    assert log == ["open", "close"] * times
    assert [batch.position for batch in batches] == [{"anything": 1}] * 3
    assert [batch.exhausted for batch in batches] == [False, False, True]
    order = [LATE, 15] if sort else [15, LATE]  # the late record has an earlier time
    assert [at for batch in batches for at in batch.samples.position] == order
    assert (batches[0].rejects.reason, batches[0].rejects.position) == (["bad_time"], [BAD_TIME])
    assert given == [[order[0], BAD_TIME], [order[1]], []]


def test_without_letters_there_is_nothing_to_do(spoiled: Deployment) -> None:
    stats, replayed = spoiled.replay(spoiled.letters("oversized"))
    assert (replayed.letters, replayed.chosen, stats.events, stats.commits) == (0, 0, 0, 0)
