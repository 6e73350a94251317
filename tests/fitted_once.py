"""A fit of the same releases is the same: tests that run one stream again and again fit each
population once.

It is most of what a short run of the engine computes. What is kept is found by all that the fit is
given: worlds that give it something else are fitted apart. The fit is tested where nothing is kept
(`tests/operators`, `tests/privacy`).
"""

from __future__ import annotations

import hashlib
import os
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from meanstream.operators.collaboration.prior.prior_by_count import PriorByCount

_kept: dict[str, bytes] = {}
_fit = PriorByCount.fit_summary


def fit_once(self: PriorByCount, summary: Any, sample_variance: Any) -> Any:
    """Fit, or give a copy of what the same numbers gave before in this process."""
    key = hashlib.sha256(pickle.dumps((self, summary, sample_variance))).hexdigest()
    if key not in _kept:
        _kept[key] = pickle.dumps(_fit(self, summary, sample_variance))
    return pickle.loads(_kept[key])  # noqa: S301 - our own bytes


def fit_once_of_all_in(folder: Path) -> None:
    """Let this process and all others that are told the same folder fit each population once; this
    is not undone."""
    folder.mkdir(exist_ok=True)

    def fit(self: PriorByCount, summary: Any, sample_variance: Any) -> Any:
        place = folder / hashlib.sha256(pickle.dumps((self, summary, sample_variance))).hexdigest()
        if not place.exists():
            begun = place.with_suffix(f".{os.getpid()}")
            begun.write_bytes(pickle.dumps(_fit(self, summary, sample_variance)))
            begun.replace(place)
        return pickle.loads(place.read_bytes())  # noqa: S301 - our own bytes

    PriorByCount.fit_summary = fit  # type: ignore[method-assign]


@pytest.fixture(autouse=True)
def fitted_once() -> Iterator[None]:
    with patch.object(PriorByCount, "fit_summary", fit_once):
        yield
