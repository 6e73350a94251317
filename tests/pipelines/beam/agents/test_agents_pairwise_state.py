"""The state of pairwise agents on Beam: charged before they tell, restored from bytes, refused
another input."""

from __future__ import annotations

import json
from typing import Any

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pytest

from meanstream.lab.papers.colme.pairwise_stream import pair_words
from meanstream.pipelines.beam.agents.agents_coders import pack_for_coder
from meanstream.pipelines.beam.agents.agents_elements import AgentSamples, Tick
from meanstream.pipelines.beam.agents.pairwise_shard import FederationShard
from meanstream.pipelines.beam.agents.pairwise_turns import ESTIMATES, StepFederation
from meanstream.pipelines.beam.agents.release_agents import REFUSALS
from meanstream.pipelines.beam.element_types.packed import unpacked
from meanstream.pipelines.beam.keyed_state.beam_ledger import SpendLedger
from meanstream.pipelines.beam.worker.worker_secret import SecretLocation
from meanstream.streaming.engine.engine_options import EngineOptions
from meanstream.streaming.store.state_snapshot import CorruptedSnapshotError
from tests.pipelines.beam.agents.test_agents_pairwise import (
    NAMES,
    SETTINGS,
    WINDOWS,
    noise,
    samples,
    totals_of,
)
from tests.pipelines.beam.support.keyed_cells import Bag, cells, fire, take


def fresh_state() -> dict[str, Any]:
    return cells(StepFederation)


def life(state: dict[str, Any], number: int, *, shift: float = 0.0) -> Any:
    """One window in a worker that was just started, on given state; what it gives, as it gives
    it."""
    step = StepFederation(SETTINGS, WINDOWS, SecretLocation(), EngineOptions(), 4)
    step.setup()
    mine = [s for s in samples() if s[2] // 10 == number]
    who, value, time = (np.array(column) for column in zip(*mine, strict=True))
    part = AgentSamples(
        names=pa.array(NAMES, pa.large_string()),
        agent=np.array([NAMES.index(name) for name in who]),
        point=SETTINGS.release.grid.encode(value + shift),
        time=time,
        key=np.zeros(0, np.uint64),
        position=np.arange(len(mine)),
    )
    for element in (pack_for_coder(part), Tick(number, float(time.max()))):
        take(step, element, state)
    return fire(step, WINDOWS.released(number), state)


def told_of(out: list[Any]) -> dict[str, list[int]]:
    return totals_of(one.value for one in out if not isinstance(one, beam.pvalue.TaggedOutput))


def tagged(out: list[Any], tag: str) -> list[Any]:
    return [
        one.value.value
        for one in out
        if isinstance(one, beam.pvalue.TaggedOutput) and one.tag == tag
    ]


def check_charged_first() -> None:
    """When the first thing leaves, every release of the window is in the ledger, for its ordered
    pair."""
    state = fresh_state()
    out = life(state, 0)
    first = next(out)
    charged = SpendLedger(state["charges"].value)
    found = told_of([first, *out])
    assert len(found) == 19  # the first sample has no one to query
    for release_id in found:
        agent, reader, index = release_id.removeprefix("test/").split(":")
        assert charged.spent(pair_words([agent], [reader])).item() >= int(index)
    rows = [unpacked(row, "charged")[1] for row in state["ledger"].values]
    assert sum(len(row["index"]) for row in rows) == 19


def test_a_release_is_charged_to_its_pair_before_it_leaves() -> None:
    check_charged_first()


def test_what_leaves_uncharged_would_be_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        Bag, "add", lambda self, value: None if b'"charged"' in value else self.values.append(value)
    )
    with pytest.raises(AssertionError):
        check_charged_first()


@pytest.mark.parametrize("cut", [1, 3])
def test_state_restored_from_its_bytes_tells_the_same(cut: int) -> None:
    whole = fresh_state()
    expected = [told_of(list(life(whole, number))) for number in range(4)]
    state = fresh_state()
    before = [told_of(list(life(state, number))) for number in range(cut)]
    saved = {
        name: (list(one.values) if isinstance(one, Bag) else one.value)
        for name, one in state.items()
    }
    lost = told_of(list(life(state, cut)))  # done, and then the worker dies
    for name, value in saved.items():
        attribute = "values" if isinstance(state[name], Bag) else "value"
        setattr(state[name], attribute, value)
    after = [told_of(list(life(state, number))) for number in range(cut, 4)]
    assert lost == after[0]
    assert before + after == expected
    assert state["federation"].value == whole["federation"].value


def test_a_federation_that_was_lost_while_the_ledger_was_kept() -> None:
    """The same input is told again and costs nothing; another is refused, and who was refused
    learns alone."""
    state = fresh_state()
    first = told_of(list(life(state, 0)))
    rows, charges = list(state["ledger"].values), state["charges"].value
    state["federation"].value = None
    assert told_of(list(life(state, 0))) == first != {}
    state["federation"].value = None
    out = list(life(state, 0, shift=0.5))
    assert told_of(out) == {}
    refusals = tagged(out, REFUSALS)
    assert {one.release_id for one in refusals} == set(first)
    assert {(one.asked, one.spent + one.remaining) for one in refusals} == {
        (1, SETTINGS.release.horizon)
    }
    (batch,) = tagged(out, ESTIMATES)
    for event in map(json.loads, batch.lines):
        assert (event["value"], event["class_size"]) == (event["local"], 1)
    assert (state["ledger"].values, state["charges"].value) == (
        rows,
        charges,
    )  # nothing was charged
    shard = FederationShard(SETTINGS, noise(SETTINGS), 4, state["federation"].value)
    assert shard.alone.all()


def test_damaged_state_is_refused() -> None:
    state = fresh_state()
    list(life(state, 0))
    kept = state["federation"].value
    assert FederationShard(SETTINGS, noise(SETTINGS), 4, kept).to_bytes() == kept
    with pytest.raises(CorruptedSnapshotError):
        FederationShard(
            SETTINGS, noise(SETTINGS), 4, kept[:-40] + bytes([kept[-40] ^ 1]) + kept[-39:]
        )
