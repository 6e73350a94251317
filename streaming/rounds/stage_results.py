"""What a statistician has published of the stages, and which of it is accepted before any user is queried upon it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from pydantic import ValidationError

from meanstream.operators.noise.random_bits import mix_hash
from meanstream.operators.records import Words
from meanstream.operators.rounds.round_records import Public
from meanstream.operators.rounds.round_results import (
    extreme_users,
    refuse_result,
    result_as_plain_data,
)
from meanstream.streaming.events.round_events import StageResult
from meanstream.streaming.rounds.window_round import WindowRound
from meanstream.streaming.rounds.window_widths import Window
from meanstream.streaming.sources.lines import LineReader

_READ_LINES = 65_536
MOST_TRIED = 16
"""So many different results of a stage are looked at; what comes after them is not read."""

StageResults = Mapping[tuple[str, int], Sequence[StageResult]]
"""What someone has published of a stage, by round and stage, in order."""


class StageResultsLocation(Protocol):
    """Where a statistician publishes."""

    def grew(self) -> bool:
        """Tell whether there is more than at the last reading."""

    def read(self, rounds: Collection[str]) -> StageResults:
        """Read the different results of these rounds that are there."""


class StageResultsFile:
    """What a statistician has published in a JSONL file; it may grow, and need not be there yet."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._size = 0  # when it was read last

    def grew(self) -> bool:
        """Tell whether there is more than at the last reading."""
        return self._path.is_file() and self._path.stat().st_size > self._size

    def read(self, rounds: Collection[str]) -> StageResults:
        """Read the different results of these rounds that are there.

        Lines that are none are skipped.
        """
        results: dict[tuple[str, int], list[StageResult]] = defaultdict(list)
        if not self._path.is_file():
            return results

        self._size = self._path.stat().st_size
        with closing(LineReader(self._path, option="stages")) as reader:
            while (taken := reader.next_block(_READ_LINES)) is not None:
                for line in taken[0].lines():
                    note_stage_result(results, line, rounds)

        return results


def note_stage_result(
    results: dict[tuple[str, int], list[StageResult]], line: bytes, rounds: Collection[str]
) -> None:
    """Note what a line has found of a stage of some rounds; one that is no result is skipped."""
    try:
        event = StageResult.model_validate_json(line)
    except ValidationError:
        return

    if event.round_id in rounds:
        of_stage = results[event.round_id, event.stage]
        if len(of_stage) < MOST_TRIED and event not in of_stage:
            of_stage.append(event)


def first_accepted_result(
    this: WindowRound,
    public: Public,
    results: Sequence[StageResult],
    *,
    shape: tuple[int, ...] = (),
) -> tuple[Public | None, list[str]]:
    """Public: the first result of a stage that users can be asked upon; None if there is none.

    Returns
    -------
    dict or None, list of str
        With it, why those before it were refused.
    """
    refused: list[str] = []
    for result in results:
        try:
            return _check_result(this, result, public, shape=shape), refused
        except ValueError as error:
            refused.append(str(error))

    return None, refused


def _check_result(
    this: WindowRound, result: StageResult, public: Public, *, shape: tuple[int, ...] = ()
) -> Public:
    """Public: give what is known after a stage, if its result can be one.

    Parameters as for `first_accepted_result`.

    Notes
    -----
    **Privacy.** No user's data is looked at. The next stage is tried on made-up users at the ends
    of what users can hold, so that a result which would stop it is refused here.
    """
    steps = this.estimator.rounds
    public_result = result.public

    if not 0 <= result.stage < len(steps) - 1:
        refuse_result("stage", f"lie between 0 and {len(steps) - 2}", result.stage)

    if Window.between(result.start, result.end) != this.window:
        refuse_result("start and end", "be those of the round's window", "others")

    result_as_plain_data(public_result)
    steps[result.stage].check(public_result, public)

    try:
        with np.errstate(divide="raise", over="raise", invalid="raise"):
            steps[result.stage + 1].encode(
                extreme_users(this.settings.grid.span, shape), public_result, _fixed_words
            )
    except Exception as error:
        raise ValueError(
            f"stage result: it must be of use to the next stage, got {type(error).__name__}"
        ) from None

    return dict(public_result)


def _fixed_words(draw: int) -> Words:
    """Give bits of no secret, for the 30 made-up users."""
    return mix_hash(np.arange(60, dtype=np.uint64).reshape(30, 2) + np.uint64(60 * draw))


def results_by_stage(round_id: str, results: Iterable[StageResult]) -> dict[int, list[StageResult]]:
    """Sort the results of one round by stage, each stage's in their order."""
    by_stage: dict[int, list[StageResult]] = defaultdict(list)
    for result in results:
        if result.round_id == round_id and len(by_stage[result.stage]) < MOST_TRIED:
            by_stage[result.stage].append(result)

    return by_stage


def shape_of_result(total: Any) -> tuple[int, ...]:
    """Tell the shape of a user's sum from those of all users."""
    return tuple(total.shape[1:])
