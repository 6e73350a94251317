"""What one sample moves in all that an agent releases, in units of the noise in it.

Both measured through `Agents`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import numpy as np

from meanstream.lab.evidence.audit_record import require_as_audited
from meanstream.lab.evidence.canaries import put_calibration
from meanstream.operators.agents.agents import Agents
from meanstream.operators.agents.agents_settings import AgentsSettings
from meanstream.operators.noise.distributions import GaussianNoise
from meanstream.operators.noise.keyed import KeyedNoise, NoiseIds, keyed_owner_words
from meanstream.operators.records import Floats, Ints, Words

STREAMS = 4_000
EACH = 2
"""Samples of an agent in a release: a pair."""
_VALUES = (0.0, 0.3, 1.0)
"""Between the bounds: a vote sees any two of them differ, and a histogram has a bin for each."""
_UNIT = 2.0**20
"""Size of a chosen draw, in standard deviations: rounding to integers is lost in it."""
_LOST = 1e-4
"""Relative: what is less is rounding."""


class ChosenDraws:
    """Stands for `KeyedNoise`.

    One draw of each owner is chosen, all others are 0, whatever is released.

    Parameters
    ----------
    chosen : sequence of (int, int)
        Release index and number of the draw, of owner after owner as `_names` has them; later
        owners have none.
    """

    def __init__(self, chosen: list[tuple[int, int]]) -> None:
        owners = keyed_owner_words(_names(len(chosen)))[:, 0].tolist() if chosen else []
        self._chosen = dict(zip(owners, chosen, strict=True))
        self.asked: dict[tuple[int, int], None] = {}

    def bits(self, ids: NoiseIds, draw: int = 0) -> Words:
        """Give 1 for a chosen draw and 0 for another one, which `_ChosenLaw` reads."""
        self.asked.update(dict.fromkeys((index, draw) for index in np.unique(ids.index).tolist()))
        words = np.zeros((len(ids), 2), np.uint64)
        if self._chosen:
            pairs = zip(ids.owner[:, 0].tolist(), ids.index.tolist(), strict=True)
            words[:, 0] = [self._chosen.get(owner) == (index, draw) for owner, index in pairs]

        return words

    def version_of(self, count: Ints, total: Ints) -> Words:  # noqa: ARG002 - as `KeyedNoise.version_of`
        """Give one version for all inputs."""
        return np.zeros(len(count), np.uint64)

    def derived(self, *_: Any) -> ChosenDraws:
        """Give the same for all purposes."""
        return self


class _ChosenLaw(GaussianNoise):
    """Turns what `ChosenDraws` gives into a draw."""

    __slots__ = ()

    def sample(self, bits: Words) -> Floats:
        """Scale it as the law does."""
        return np.asarray(bits[:, 0].astype(np.float64) * (_UNIT * self.stddev))


def largest_move(settings: AgentsSettings, releases: int, rng: np.random.Generator) -> float:
    """Measure the largest move of everything that is released when one sample is replaced, in deviations of the noise.

    Parameters
    ----------
    settings : AgentsSettings
        With Gaussian noise, and a release each second of event time (`canaries.compressed`).
    releases : int
        Of each agent.
    rng : Generator
        Of the streams, and of which sample is replaced by what.

    Notes
    -----
    Releases are `x + N g`, with g standard normal, one entry for each draw that is requested. Column by column, N is
    what a release becomes when one draw is chosen and the others are 0: nothing is assumed of which number has a draw
    of its own. A move m is as large as the least g with `N g = m`.

    Examples
    --------
    >>> from meanstream.lab.evidence.canaries import compressed
    >>> settings = AgentsSettings(lower=0, upper=1, epsilon=1, delta=1e-6, horizon=4, noise="gaussian")
    >>> found = largest_move(compressed(settings), 4, np.random.default_rng(1))
    >>> round(found / settings.mu, 5)
    1.0
    """
    chosen = _with_chosen_draws(settings)
    values = rng.choice(_VALUES, (STREAMS, releases * EACH))
    changed = values.copy()
    changed_sample = rng.integers(0, values.shape[1], STREAMS)
    changed[np.arange(STREAMS), changed_sample] = 1.0 - values[np.arange(STREAMS), changed_sample]

    no_noise = ChosenDraws([])
    moved = _released(chosen, no_noise, values) - _released(chosen, no_noise, changed)
    slots = list(no_noise.asked)
    made = _released(chosen, ChosenDraws(slots), np.zeros((len(slots) + 1, values.shape[1])))
    noise = (made[:-1] - made[-1]).T / _UNIT
    left, size, right = np.linalg.svd(noise, full_matrices=False)
    nonzero = size > _LOST * size.max(initial=1.0)
    explained = left[:, nonzero].T @ moved.T
    beyond = np.linalg.norm(moved.T - left[:, nonzero] @ explained, axis=0)
    hidden = bool(np.all(beyond <= _LOST * np.linalg.norm(moved, axis=1)))
    require_as_audited(hidden, "a sample moves releases in a way that their noise does not")

    return float(
        np.linalg.norm(right[nonzero].T @ (explained / size[nonzero, np.newaxis]), axis=0).max()
    )


def _with_chosen_draws(settings: AgentsSettings) -> AgentsSettings:
    """Give the same settings, with laws that read chosen draws."""
    with_draws = replace(settings)
    put_calibration(with_draws, settings)
    fresh = _ChosenLaw(cast("GaussianNoise", settings.fresh).stddev)
    parts: dict[str, Any] = {"fresh": fresh}

    for name in ("vote", "histogram"):
        counts = getattr(settings, name)
        parts[name] = counts and replace(counts, noise=_ChosenLaw(counts.noise.stddev))

    if settings.kept is not None:
        parts["kept"] = replace(
            settings.kept, sums=cast("Any", replace(settings.kept.sums, fresh=fresh))
        )

    with_draws.__dict__.update(parts)
    return with_draws


def _names(n: int) -> list[str]:
    return [f"stream {i}" for i in range(n)]


def _released(settings: AgentsSettings, noise: ChosenDraws, values: Floats) -> Floats:
    """Everything that each agent releases, a row each: sums in widths, and counts."""
    n = len(values)
    agents = Agents(settings, cast("KeyedNoise", noise), votes_alone=True)
    agents.add_agents(_names(n))
    columns_released: list[Floats] = []

    for second in range(values.shape[1] // EACH):
        samples = settings.lower + values[:, second * EACH : (second + 1) * EACH] * (
            settings.upper - settings.lower
        )
        times = second + np.arange(EACH) / EACH  # pairs are by time
        agents.update(np.repeat(np.arange(n), EACH), samples.ravel(), np.tile(times, n))

        releases = agents.advance(second + 1.0).releases
        columns = (
            releases.total[:, np.newaxis] / settings.grid.span,
            releases.votes[:, 2:],
            releases.histogram[:, 2:],
        )
        columns_released += [np.asarray(column, np.float64) for column in columns if len(column)]

    return np.concatenate(columns_released, axis=1)
