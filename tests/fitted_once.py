"""A fit of the same releases is the same: tests that run one stream again and again fit each population once.

It is most of what a short run of the engine computes. Only `tests/streaming` and `tests/pipelines` use it; what the fit
itself is, and that no private value reaches it, is tested where nothing is kept (`tests/operators`, `tests/privacy`,
`tests/noninterference`).
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from typing import Any
from unittest.mock import patch

import pytest

from meanstream.operators.collaboration.prior_by_count import PriorByCount

_kept: dict[bytes, bytes] = {}
_fit = PriorByCount.fit_summary


def fit_once(self: PriorByCount, summary: Any, sample_variance: Any) -> Any:
    """Fit, or give a copy of what the same numbers gave before in this process."""
    key = pickle.dumps((self, summary, sample_variance))
    if key not in _kept:
        _kept[key] = pickle.dumps(_fit(self, summary, sample_variance))
    return pickle.loads(_kept[key])  # noqa: S301 - our own bytes


@pytest.fixture(autouse=True)
def fitted_once() -> Iterator[None]:
    with patch.object(PriorByCount, "fit_summary", fit_once):
        yield
