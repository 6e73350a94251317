"""What the intake does with late samples that are to count all the same, and what it counts."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from meanstream.operators.agents.agents import AgentsSettings
from meanstream.streaming.engine.engine_intake import Intake
from meanstream.streaming.engine.engine_options import EngineOptions
from meanstream.streaming.engine.engine_stats import EngineStats
from meanstream.streaming.events.event_columns import Rejects, SampleColumns
from tests.streaming.support.scripted_source import ScriptedSource

LATENESS = 3.0
SETTINGS = AgentsSettings(
    lower=0, upper=10, epsilon=1, delta=1e-6, schedule="geometric:2,1.5", name="world"
)


def admitted(
    intake: Intake, times: Sequence[float], *, now: float = 1e6, value: float = 5.0
) -> Rejects:
    samples = ScriptedSource([("ann", value, t) for t in times]).next_batch(len(times)).samples
    rejects = Rejects()
    intake.admit(samples, rejects, now)
    return rejects


def test_late_samples_that_count_have_the_time_of_the_watermark_or_their_own_if_it_is_newer() -> (
    None
):
    options = EngineOptions(allowed_lateness=LATENESS, late="accept", quorum=1)
    intake = Intake(SETTINGS.grid, options, "script", EngineStats())
    admitted(intake, [100.0])
    assert not len(intake.due([0]).time)
    assert intake.watermark == 97.0
    # 10 is long past; 150 is late because of the 200 before it, and yet after the watermark; 96 and
    # 97 are at its edge.
    assert not admitted(intake, [10.0, 200.0, 150.0, 96.0, 198.0])
    just_before = math.nextafter(97.0, -math.inf)
    assert intake.due([0]).time.tolist() == [just_before, just_before, 100.0, 150.0]
    assert intake.due([0], ended=True).time.tolist() == [198.0, 200.0]


def test_what_is_not_used_is_told_with_its_reason_and_its_place() -> None:
    options = EngineOptions(allowed_lateness=LATENESS, max_future=60.0, max_agents=1, quorum=1)
    intake = Intake(SETTINGS.grid, options, "script", EngineStats())
    source = ScriptedSource(
        [(agent, 5.0, t) for agent, t in (("ann", 100), ("ann", 99), ("bob", 100), ("ann", 10))]
    )
    samples = source.next_batch(4).samples
    rejects = Rejects()
    intake.admit(samples, rejects, 40.0)  # 100 is just within the future that is taken
    assert (rejects.reason, rejects.position) == (
        ["late", "too_many_agents"],
        [samples.position[3], samples.position[2]],
    )
    rejects = Rejects()
    intake.admit(samples, rejects, 39.0)
    assert rejects.reason[:2] == ["in_future"] * 2
    assert rejects.position[:2] == samples.position[[0, 2]].tolist()


def test_an_agent_keeps_its_number_whichever_directory_of_names_it_comes_with() -> None:
    options = EngineOptions(allowed_lateness=LATENESS, quorum=1)
    intake = Intake(SETTINGS.grid, options, "script", EngineStats())
    directories = (["ann", "bob", "dan"], ["eve", "bob", "dan"], ["fay", "dan", "ann"])
    turns = ((0, 2), (1, 3), (0, 3), (2, 3), (0, 3))
    for turn, (which, rows) in enumerate(turns):
        agent = np.arange(rows)
        time = np.full(rows, 100.0 + 10 * turn)
        samples = SampleColumns(
            directories[which], agent, np.full(rows, 5.0), time, None, rows * turn + agent
        )
        intake.admit(samples, Rejects(), 1e6)

    assert intake.names == ["ann", "bob", "eve", "dan", "fay"]
    numbers = [0, 1, 2, 1, 3, 0, 1, 3, 4, 3, 0, 0, 1, 3]
    assert intake.due([0], ended=True).agent.tolist() == numbers
