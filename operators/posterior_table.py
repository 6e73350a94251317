"""Posteriors of very many agents by interpolation in (own mean, log of its variance)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from operators.records import Floats, Ints

CELLS_PER_STDDEV = 8.0
MOST_CELLS = 4096
LEVEL_STEP = 0.25
CHUNK = 1 << 14
ELEMENTS = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Posterior:
    """Posterior of each agent: mean, variance, most likely component, its probability and its expected size."""

    value: Floats
    variance: Floats
    component: Ints
    membership: Floats
    class_size: Floats


Evaluate = Callable[[Floats, Floats], Posterior]


def look_up(evaluate: Evaluate, mean: Floats, variance: Floats, n_components: int) -> Posterior:
    """Evaluate exactly for few agents; interpolate in a table where that is cheaper.

    Parameters
    ----------
    evaluate : callable
        Maps own means (n,) and variances (n,) or (1,) to a `Posterior`.
    mean, variance : float array, shape (n_agents,)
    n_components : int
        Cost of one evaluation.
    """
    if len(mean) < 4 * MOST_CELLS:
        return _exact(evaluate, mean, variance, n_components)
    table = _Table.build(evaluate, mean, variance, n_components)
    return _gather(table.read, mean, variance, CHUNK)


def _exact(evaluate: Evaluate, mean: Floats, variance: Floats, n_components: int) -> Posterior:
    return _gather(evaluate, mean, variance, max(1, ELEMENTS // max(1, n_components)))


def _gather(evaluate: Evaluate, mean: Floats, variance: Floats, chunk: int) -> Posterior:
    """Evaluate in chunks that stay in the cache."""
    n = len(mean)
    out: dict[str, Any] = {f.name: np.empty(n, int if f.name == "component" else float) for f in fields(Posterior)}
    for start in range(0, n, chunk):
        part = slice(start, start + chunk)
        piece = evaluate(mean[part], variance[part])
        for name, column in out.items():
            column[part] = getattr(piece, name)
    return Posterior(**out)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Table:
    """Nodes of several levels of log variance, one after the other; linear between nodes and between levels."""

    start: float
    least: float
    offset: Ints
    inverse: Floats
    shift: Floats
    stddev: Floats
    nearest: dict[str, np.ndarray[Any, Any]]

    @classmethod
    def build(cls, evaluate: Evaluate, mean: Floats, variance: Floats, n_components: int) -> _Table:
        start, stop = float(mean.min()), float(mean.max())
        least, most = float(np.log(variance.min())), float(np.log(variance.max()))
        levels = least + LEVEL_STEP * np.arange(int((most - least) / LEVEL_STEP + 1e-9) + 2)
        if most - least < 1e-9:
            levels = levels[:1]
        step = np.maximum(np.exp(levels / 2) / CELLS_PER_STDDEV, (stop - start) / MOST_CELLS + 1e-300)
        cells = np.ceil((stop - start) / step).astype(np.int64) + 2
        parts = [
            _exact(evaluate, start + step[i] * np.arange(n), np.full(n, np.exp(levels[i])), n_components)
            for i, n in enumerate(cells)
        ]
        nodes = np.concatenate([start + s * np.arange(n) for s, n in zip(step, cells, strict=True)])
        columns = {f.name: np.concatenate([getattr(p, f.name) for p in parts]) for f in fields(Posterior)}
        shift, stddev = columns.pop("value") - nodes, np.sqrt(columns.pop("variance"))
        offset = np.concatenate([[0], np.cumsum(cells)[:-1]])
        return cls(
            start=start, least=least, offset=offset, inverse=1 / step, shift=shift, stddev=stddev, nearest=columns
        )

    def read(self, mean: Floats, variance: Floats) -> Posterior:
        away = mean - self.start
        if len(self.offset) == 1:
            return self._pack(mean, *self._level(away, 0))
        height = (np.log(variance) - self.least) * (1 / LEVEL_STEP)
        level = np.clip(height.astype(np.int64), 0, len(self.offset) - 2)
        height -= level
        shift, stddev, index = self._level(away, level)
        upper_shift, upper_stddev, _ = self._level(away, level + 1)
        shift += height * (upper_shift - shift)
        stddev += height * (upper_stddev - stddev)
        return self._pack(mean, shift, stddev, index)

    def _level(self, away: Floats, level: Ints | int) -> tuple[Floats, Floats, Ints]:
        place = away * self.inverse[level]
        index = place.astype(np.int64)
        place -= index
        index += self.offset[level]
        shift, stddev = self.shift[index], self.stddev[index]
        shift += place * (self.shift[index + 1] - shift)
        stddev += place * (self.stddev[index + 1] - stddev)
        return shift, stddev, index

    def _pack(self, mean: Floats, shift: Floats, stddev: Floats, index: Ints) -> Posterior:
        picked = {name: column[index] for name, column in self.nearest.items()}
        return Posterior(value=mean + shift, variance=stddev * stddev, **picked)
