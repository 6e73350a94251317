"""Arguments of frames that are no numbers, no columns or no names: one line that names them."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest

import meanstream
from tests.pipelines.command_line import SECRET

ROWS = 24
FRAME = pd.DataFrame(
    {
        "g": [f"g{i % 4}" for i in range(ROWS)],
        "v": [float(i) for i in range(ROWS)],
        "t": pd.date_range("2024", periods=ROWS, freq="h"),
        "month": pd.period_range("2024", periods=ROWS, freq="M"),
    }
)
HUGE = 10**400
GIVEN: dict[str, Any] = {
    **{"by": "g", "value": "v", "lower": 0, "upper": 100, "epsilon": 1.0},
    **{"secret": SECRET, "name": "bad"},
}
MEANS: dict[str, tuple[dict[str, Any], str]] = {
    "a bound": ({"lower": HUGE}, "lower must be below 1.8e308, got 1000"),
    "a bound of more digits than Python writes": (
        {"upper": 10**6000},
        "upper must be below 1.8e308, got a number of thousands of digits",
    ),
    "level": ({"level": HUGE}, "level must be below 1.8e308"),
    "delta": ({"delta": HUGE}, "delta must be below 1.8e308"),
    "a quantile": ({"quantiles": [HUGE]}, "quantiles must be below 1.8e308"),
    "one quantile": ({"quantiles": 0.5}, "quantiles must be a sequence of numbers, such as"),
    "one threshold": ({"exceeds": 5}, "exceeds must be a sequence of numbers, such as"),
    "a missing number": ({"missing": [HUGE]}, "missing must be below 1.8e308"),
    "no column": ({"by": None}, "by must be the name of a column or several, got None"),
    "a number for a column": ({"by": 5}, "by must be the name of a column or several, got 5"),
    "a megabyte for a column": ({"by": "g" * 10**6}, "by must be a column of the frame"),
    "a schedule": ({"schedule": 5}, "schedule must be text, got 5"),
    "a key": ({"secret": 5}, "secret must be text or bytes, got int"),
    "half letters for a key": ({"secret": "\ud800" * 40}, "secret must be text that UTF-8 can"),
    "rows of a person": ({"person": "t", "per_person": HUGE}, "per_person must be at most 65,535"),
    "one statistic": ({"statistics": 5}, "statistics must be of mean, sum, variance, got 5"),
    "a number for a store": ({"store": 5}, "store must be the path of a file, got 5"),
    "a number for times": ({"time": 5}, "time must be text, got 5"),
    "a number for persons": ({"person": 5, "per_person": 1}, "person must be text, got 5"),
    "a counter without a delta": (
        {"counter": "optimal"},
        "delta must be positive, such as 1e-6, for the optimal counter, whose noise is Gaussian",
    ),
    "periods": ({"by": "month"}, "by must be a column of names .* frame.name..astype"),
}
WINDOWS: dict[str, tuple[dict[str, Any], str]] = {
    "a bound": ({"upper": HUGE}, "upper must be below 1.8e308"),
    "level": ({"level": None}, "level must be a number, got None"),
    "window": ({"window": 7}, "window must be text, got 7"),
    "time": ({"time": 5}, "time must be text, got 5"),
    "one quantile": ({"quantiles": 0.5}, "quantiles must be a sequence of numbers, such as"),
    "users": ({"users": HUGE}, "users must be at most 1,000,000,000,000, got 1000"),
    "options": ({"options": 5}, "options must be a dict of the estimator's options by their names"),
}


def one_line(error: pytest.ExceptionInfo[ValueError]) -> None:
    assert "\n" not in str(error.value)
    assert len(str(error.value)) < 2500


@pytest.mark.parametrize("case", MEANS)
def test_means_refuse_it(case: str) -> None:
    change, said = MEANS[case]
    with pytest.raises(ValueError, match=f"^{said}") as error:
        meanstream.private_means(FRAME, **GIVEN | change)
    one_line(error)


@pytest.mark.parametrize("case", WINDOWS)
def test_windows_refuse_it(case: str) -> None:
    change, said = WINDOWS[case]
    with pytest.raises(ValueError, match=f"^{said}") as error:
        meanstream.private_windows(FRAME, **{**GIVEN, "time": "t", "window": "1d"} | change)
    one_line(error)
