"""A replay counts records that were not used, once each, whatever happens meanwhile, and changes
nothing else."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from meanstream.streaming.events.event_columns import Batch
from meanstream.streaming.open_source import open_source
from meanstream.streaming.replay.reopen import Opened
from meanstream.streaming.sources.mapping import ColumnMapping
from tests.streaming.replay.conftest import (
    BAD_TIME,
    BAD_VALUE,
    FIRST,
    LATE,
    MENDED,
    Deployment,
    all_bad_times,
    row,
    spoiled_lines,
    stopping_after,
    write,
)


def test_records_that_are_good_now_count_as_if_they_had_been_good(
    spoiled: Deployment, whole: Deployment
) -> None:
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
    assert len({agent for agent, *_ in after[len(before) :]}) == len(
        {BAD_TIME % 3, BAD_VALUE % 3, LATE % 3}
    )


def test_what_fails_again_stays_unused_and_a_later_replay_takes_it_up(
    spoiled: Deployment, whole: Deployment
) -> None:
    stats, _ = spoiled.replay(mapping=FIRST)
    assert (stats.accepted, stats.rejected) == (
        1,
        Counter(bad_time=1, bad_value=1),
    )  # the late one counts from now on
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


def test_a_source_that_the_store_has_not_read_is_refused(spoiled: Deployment) -> None:
    spoiled.path = spoiled.path.rename(spoiled.path.with_name("y.csv"))
    with pytest.raises(
        ValueError, match=r"source must be one that the store has read, got 'y.csv'; did you mean"
    ):
        spoiled.replay()


@pytest.mark.parametrize("sort", [True, False])
def test_another_file_of_the_same_name_is_refused(
    sort: bool, new_world: Callable[[str], Any], tmp_path: Path
) -> None:
    """Its records at the same places are others; also under a mapping by which it was not read."""
    deployment = Deployment(new_world("other"), write(tmp_path / "x.csv", spoiled_lines()))
    deployment.first_run(sort=sort)
    stats, _ = deployment.replay(deployment.letters("bad_time"))
    assert stats.accepted == 1
    write(deployment.path, all_bad_times())
    with pytest.raises(
        ValueError, match=r"source must be the file that this store was filled from, got another"
    ):
        deployment.replay()
    assert BAD_VALUE in deployment.unused()


@pytest.mark.parametrize(("sort", "shift"), [(True, 1), (False, 1), (False, -1)])
def test_a_file_with_lines_more_or_less_is_refused(
    sort: bool, shift: int, new_world: Callable[[str], Any], tmp_path: Path
) -> None:
    """Far behind its beginning: at the places of dead letters stand samples that were counted."""
    lines = [row(i) for i in range(2, 402)]
    lines[300:320] = [row(i, value="bad") for i in range(302, 322)]
    deployment = Deployment(new_world("moved"), write(tmp_path / "x.csv", lines))
    deployment.first_run(sort=sort)
    totals = deployment.totals()
    write(
        deployment.path,
        [*lines[:300], *[row(i) for i in range(500, 520)][:shift], *lines[300 - min(shift, 0) :]],
    )
    with pytest.raises(
        ValueError, match=r"source must be the file that this store was filled from, got another"
    ):
        deployment.replay()
    assert deployment.totals() == totals
    write(deployment.path, lines)
    assert deployment.replay()[0].accepted == 20


def test_records_that_are_gone_are_told_and_stay_unused(spoiled: Deployment) -> None:
    from meanstream.streaming.replay.replay_letters import SelectedSource

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
    monkeypatch.setattr("meanstream.streaming.engine.unused_records.PIECE", 5)
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


@pytest.mark.parametrize(
    ("ids", "times", "sort"), [("id", 2, True), (None, 1, True), (None, 1, False)]
)
def test_the_source_is_read_twice_only_to_compare_ids(
    ids: str | None, times: int, sort: bool, tmp_path: Path
) -> None:
    from meanstream.streaming.replay.replay_letters import SelectedSource

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
