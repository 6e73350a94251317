"""Wherever people read epsilon they read what many samples of one person cost, and the figures are
the mechanism's."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from meanstream.operators.agents.admission import MAX_PERSONS, PersonCounts
from meanstream.operators.agents.agents_settings import AgentsSettings
from meanstream.operators.noise.group_privacy import GROUPS

ROOT = Path(__file__).parents[2]
NOT_SO = (
    "Brokers that are away are waited for;",  # at the start they are not
    "another store that reads the same partition is refused",  # of the same group
    "is the only way to the records",  # the source holds them
    "another sum with the same noise",  # another input has other noise
)
"""What the documents once said, and what is not so."""


def text_of(name: str) -> str:
    return " ".join((ROOT / name).read_text().split())


def test_the_promise_has_the_figures_of_the_mechanism() -> None:
    pure = AgentsSettings(lower=-30, upper=120, epsilon=1)
    readme = text_of("README.md")
    assert (
        f"At epsilon 1, ten samples of one person together have epsilon {pure.epsilon_for(10):g}."
        in readme
    )
    settings = AgentsSettings(lower=-30, upper=120, epsilon=1, delta=1e-6, noise="gaussian")
    said = text_of("docs/privacy.md")
    found = re.search(
        r"under Gaussian noise at \(1, 1e-6\), 2 samples of one person together have epsilon "
        r"([^(;]*); under pure noise K have K\.",
        said,
    )
    assert found is not None
    figures = [
        float(number) for number in re.findall(r"\d+(?:\.\d+)?", "2 samples have " + found[1])[1:]
    ]
    shown = [float(f"{settings.epsilon_for(k):.3g}") for k in GROUPS]
    pairs = dict(zip(figures[1::2], figures[2::2], strict=False))
    assert figures[0] == round(shown[0], 1)
    assert pairs == {float(k): round(e, 1) for k, e in zip(GROUPS[1:], shown[1:], strict=True)}


@pytest.mark.parametrize(
    "name", ["README.md", "docs/operations/*.md", "docs/deployment.md", "docs/beam*.md"]
)
def test_what_was_not_so_is_not_said_again(name: str) -> None:
    pages = [path.relative_to(ROOT).as_posix() for path in ROOT.glob(name)]
    assert pages
    assert [
        (page, sentence) for page in pages for sentence in NOT_SO if sentence in text_of(page)
    ] == []


def test_a_person_takes_the_bytes_that_are_said() -> None:
    counts, n = PersonCounts(3), 1000
    counts.take(np.zeros(n, np.uint64), np.arange(n, dtype=np.uint64))
    assert sum(column.nbytes for column in counts.whole().values()) == 10 * n
    assert "ten bytes for each person" in text_of("docs/operations/partitions.md")
    assert f"at most {MAX_PERSONS:,} of them" in text_of("docs/operations/partitions.md")


def test_many_samples_windows_and_jobs_are_spoken_of_where_epsilon_is() -> None:
    said = text_of("README.md")
    for part in (
        "A person with many samples is protected less",
        "Each further window costs epsilon again",
        "several agents, stores or jobs adds up",
    ):
        assert part in said
    assert "Nothing is claimed of amplification by sampling or shuffling" in text_of(
        "docs/privacy.md"
    )
