"""How many stages a pipeline of rounds is built with, before anybody knows how many users come."""

from __future__ import annotations

from dataclasses import replace

import pytest

from meanstream.pipelines.beam.rounds.rounds_parts import POPULATIONS, rounds_part_stages
from tests.streaming.support.rounds_world import rounds_settings


@pytest.mark.parametrize(("estimator", "needed"), [("one_shot", 1), ("kent", 2), ("adaptive", 5)])
def test_a_pipeline_has_the_stages_of_the_population_that_needs_most(
    estimator: str, needed: int
) -> None:
    settings = rounds_settings(estimator=estimator, epsilon=1.0, sizes="point:10")
    designed = {len(settings.estimator_for(users).rounds) for users in POPULATIONS}
    assert max(designed) == needed  # of an adaptive one fewer where users are few
    assert rounds_part_stages(settings, None) == needed
    assert rounds_part_stages(settings, 3) == 3
    few = replace(settings, users=10)
    assert rounds_part_stages(few, 3) == len(few.estimator_for(10).rounds) < 3
