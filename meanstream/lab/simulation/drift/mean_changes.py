"""How simulated means change.

The option `change`, and where every agent's mean is at each of its samples.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Self

import numpy as np

from meanstream.operators.records import Bools, Floats
from meanstream.operators.validation import require

SHARE = 0.5
"""Of the agents that a new class takes, unless it says how many."""
MOST_SAMPLES = 10**9
_FORMS = "be step:SIZE,SHARE, walk:SD/EVERY, new-class:MEAN[,SHARE] or all:SIZE, each with @SAMPLES or without"
_NUMBER = r"([+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)"
_WHOLE = r"(\d{1,10})"
_WRITTEN = {
    "step": re.compile(rf"{_NUMBER},{_NUMBER}", re.ASCII),
    "walk": re.compile(rf"{_NUMBER}/{_WHOLE}", re.ASCII),
    "new-class": re.compile(rf"{_NUMBER}(?:,{_NUMBER})?", re.ASCII),
    "all": re.compile(_NUMBER, re.ASCII),
}


@dataclass(frozen=True, slots=True)
class MovingMeans:
    """Where the agents' means are.

    Parameters
    ----------
    levels : float array, shape (levels, agents)
        All means that the agents have, one row after the other.
    begin, every : int
        The second row holds from sample `begin` on, counted from 0, and each further one `every`
        samples later.
    """

    levels: Floats
    begin: int
    every: int

    def of_samples(self, start: int, stop: int) -> Floats:
        """Give the means behind samples `start` to `stop` of each agent, shape (samples, agents)."""
        since = np.arange(start, stop) - self.begin
        return np.asarray(
            self.levels[
                np.where(since < 0, 0, np.minimum(1 + since // self.every, len(self.levels) - 1))
            ]
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeOfMeans:
    """A change of some or all means.

    Parameters
    ----------
    kind : {"step", "walk", "new-class", "all"}
        A share of the agents moves by `size`; every mean takes a normal step of standard deviation
        `size` again and again; a share of the agents moves to the mean `size`; everyone moves by
        `size`.
    size : float
    share : float
        Of the agents that change, spread evenly over them.
    every : int or None
        Samples between two steps of a walk.
    begin : int or None
        Samples of each agent before the change; None is half of them.

    Examples
    --------
    >>> ChangeOfMeans.parse("step:0.2,0.25@5000")
    ChangeOfMeans(kind='step', size=0.2, share=0.25, every=None, begin=5000)
    >>> ChangeOfMeans.parse("step:0.2,0.25").changed(8).tolist()
    [True, False, False, False, True, False, False, False]
    """

    kind: str
    size: float
    share: float
    every: int | None
    begin: int | None

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read `step:SIZE,SHARE | walk:SD/EVERY | new-class:MEAN[,SHARE] | all:SIZE`, and `@SAMPLES` after each."""
        written, at, samples = text.partition("@")
        kind, _, rest = written.partition(":")
        found = _WRITTEN[kind].fullmatch(rest) if kind in _WRITTEN else None
        begin = re.fullmatch(_WHOLE, samples, re.ASCII)

        if found is None or (at and begin is None):
            raise ValueError(f"change must {_FORMS}, got {text!r}")
        size = float(found[1])
        second = found[2] if found.re.groups > 1 else None
        require(math.isfinite(size), "change", "be finite", text)
        require(
            kind != "walk" or size >= 0,
            "change",
            "have a standard deviation that is not negative",
            text,
        )

        every = int(second or 0) if kind == "walk" else None
        require(
            every is None or 1 <= every <= MOST_SAMPLES,
            "change",
            f"step every 1 to {MOST_SAMPLES} samples",
            text,
        )

        share = (
            float(second)
            if second is not None and kind != "walk"
            else SHARE
            if kind == "new-class"
            else 1.0
        )
        require(0 < share <= 1, "change", "have a SHARE in (0, 1]", text)
        first = None if begin is None else int(begin[0])
        rule = f"begin after 1 to {MOST_SAMPLES} samples"
        require(first is None or 1 <= first <= MOST_SAMPLES, "change", rule, text)

        return cls(kind=kind, size=size, share=share, every=every, begin=first)

    def changed(self, agents: int) -> Bools:
        """Tell which agents change: at least one."""
        number = max(round(self.share * agents), 1)
        return np.asarray(np.arange(agents) * number % agents < number)

    def apply(
        self, generator: np.random.Generator, mean: Floats, begin: int, steps: int
    ) -> MovingMeans:
        """Give the means of agents over `steps` samples that start at `mean` and change after `begin` samples."""
        if self.kind == "walk":
            every = int(self.every or 1)
            moves = generator.normal(0.0, self.size, (-(-(steps - begin) // every), len(mean)))
            return MovingMeans(np.vstack([mean, mean + np.cumsum(moves, axis=0)]), begin, every)

        after = self.size if self.kind == "new-class" else mean + self.size
        return MovingMeans(
            np.stack([mean, np.where(self.changed(len(mean)), after, mean)]), begin, steps
        )
