"""CPU time of a round on Beam's FnApiRunner, against the plain windowed mean per user of the same samples.

    python benchmarks/beam/beam_rounds.py            one and ten windows, samples one by one and as arrays
    python benchmarks/beam/beam_rounds.py --large    a million users with ten samples each: time and peak memory
    python benchmarks/beam/beam_rounds.py --windows  150 windows of 600 samples: milliseconds per window
    python benchmarks/beam/beam_rounds.py --budget   100 such windows that wait with a budget, and all that learn
    python benchmarks/beam/beam_rounds.py --shapes   many windows of few and many users, per sample; with the mean

All samples are made inside the worker, so that none of the times holds their way into the pipeline.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import apache_beam as beam
import numpy as np
from apache_beam.transforms.combiners import MeanCombineFn
from apache_beam.transforms.window import FixedWindows, TimestampedValue

from benchmarks.beam.agents_work import cpu_seconds
from meanstream.pipelines.beam.rounds.round_transforms import RunRounds
from meanstream.streaming.events.event_columns import SampleColumns
from meanstream.streaming.rounds.rounds_settings import RoundsSettings

BATCH = 65_536
WINDOW = 7 * 86_400.0
GOALS = {"elements_ratio": 0.3, "arrays_ratio": 0.05, "ten_windows_ratio": 1.3}
GOALS |= dict.fromkeys(
    (f"{name}_milliseconds_per_window" for name in ("declared", "counted", "budget", "carried")),
    6.0,
)


def batches(samples: int, users: int, windows: int) -> Iterator[SampleColumns]:
    """Make samples of random users at random times."""
    names = [f"user {number}" for number in range(users)]
    rng = np.random.default_rng(1)
    for start in range(0, samples, BATCH):
        n = min(BATCH, samples - start)
        user = rng.integers(0, users, n)
        value = rng.normal(10.0, 20.0, n)
        yield SampleColumns(
            names, user, value, rng.uniform(0, windows * WINDOW, n), None, np.arange(n)
        )


def elements(samples: int, users: int, windows: int) -> Iterator[tuple[str, float, float]]:
    """Make the same, one by one."""
    for batch in batches(samples, users, windows):
        user = map(batch.names.__getitem__, batch.agent.tolist())
        yield from zip(user, batch.value.tolist(), batch.time.tolist(), strict=True)


class Form(NamedTuple):
    """How samples come: what makes them, and what an element is."""

    make: Callable[[int, int, int], Iterator[Any]]
    kind: Any


ELEMENTS = Form(elements, tuple[str, float, float])
ARRAYS = Form(batches, SampleColumns)


def plain(users: int, windows: int) -> Callable[[Any], Any]:
    """Build what a user of Beam writes for the mean of each user and window."""

    def build(pipeline: Any) -> Any:
        return (
            pipeline
            | beam.FlatMap(lambda n: elements(n, users, windows)).with_output_types(
                tuple[str, float, float]
            )
            | beam.Map(
                lambda sample: TimestampedValue((sample[0], sample[1]), sample[2])
            ).with_output_types(tuple[str, float])
            | beam.WindowInto(FixedWindows(WINDOW))
            | beam.CombinePerKey(MeanCombineFn())
        )

    return build


def made(users: int, windows: int, form: Form) -> Callable[[Any], Any]:
    """Build the samples alone: what all the others contain."""

    def build(pipeline: Any) -> Any:
        source = pipeline | beam.FlatMap(lambda n: form.make(n, users, windows)).with_output_types(
            form.kind
        )
        return source | beam.Filter(lambda _: False)

    return build


def private(
    users: int,
    windows: int,
    form: Form,
    estimator: str,
    *,
    declared: bool = True,
    budget: float | None = None,
) -> Callable[[Any], Any]:
    """Build a round per window; the number of users of a window is declared, or counted."""

    def build(pipeline: Any) -> Any:
        source = pipeline | beam.FlatMap(lambda n: form.make(n, users, windows)).with_output_types(
            form.kind
        )
        given: dict[str, Any] = {
            "lower": -30,
            "upper": 120,
            "epsilon": 1.0,
            "window": "7d",
            "user_budget": budget,
        }

        rounds = RunRounds(
            RoundsSettings(
                estimator=estimator, name="benchmark", users=users if declared else None, **given
            )
        )

        return (source | rounds).estimates

    return build


def compare(samples: int, users: int, estimator: str) -> dict[str, float]:
    """Measure all cases in one run."""
    cpu_seconds(1000, private(10, 1, ARRAYS, estimator))  # warm
    times = {"plain": cpu_seconds(samples, plain(users, 1))}
    for windows in (1, 10):
        for name, form in (("elements", ELEMENTS), ("arrays", ARRAYS)):
            case = private(users, windows, form, estimator)
            times[f"{name}_{windows}"] = min(cpu_seconds(samples, case) for _ in range(3))

    times["making_elements"] = cpu_seconds(samples, made(users, 1, ELEMENTS))
    times["making_arrays"] = cpu_seconds(samples, made(users, 1, ARRAYS))
    return {
        **{f"{name}_seconds": round(seconds, 3) for name, seconds in times.items()},
        "elements_ratio": times["elements_1"] / times["plain"],
        "arrays_ratio": times["arrays_1"] / times["plain"],
        "ten_windows_ratio": times["elements_10"] / times["elements_1"],
        "ten_windows_arrays_ratio": times["arrays_10"] / times["arrays_1"],
    }


def many_windows(users: int, estimator: str) -> dict[str, float]:
    """Measure a window of few samples, without the start, in turn with the number of users declared and counted."""
    windows = 150
    found = {}
    for name, declared in (("declared", True), ("counted", False)):
        one, all_windows = (
            min(
                cpu_seconds(600 * n, private(users, n, ARRAYS, estimator, declared=declared))
                for _ in range(2)
            )
            for n in (1, windows)
        )
        found[f"{name}_milliseconds_per_window"] = (all_windows - one) / (windows - 1) * 1e3

    return found


def waiting(users: int) -> dict[str, float]:
    """Measure windows that wait in state.

    Of a budget, and of an estimator that carries from window to window.
    """
    windows = 100
    found = {}
    for name, estimator, budget in (("budget", "one_shot", 1000.0), ("carried", "repeating", None)):
        case = [
            private(users, n, ARRAYS, estimator, declared=False, budget=budget)
            for n in (1, windows)
        ]
        one, all_windows = (
            min(cpu_seconds(600 * n, build) for _ in range(2))
            for n, build in zip((1, windows), case, strict=True)
        )
        found[f"{name}_milliseconds_per_window"] = (all_windows - one) / (windows - 1) * 1e3

    return found


def shapes(estimator: str) -> dict[str, float]:
    """Measure whole pipelines per sample, start included.

    Rounds of arrays, and the mean of single samples.
    """
    found = {}
    for windows, per_window, users in (
        (100, 600, 10_000),
        (1000, 600, 10_000),
        (1000, 100, 10_000),
        (900, 10_000, 10_000),
    ):
        samples = windows * per_window
        name = f"{windows}_of_{per_window}"
        for declared, said in ((True, "declared"), (False, "counted")):
            took = cpu_seconds(
                samples, private(users, windows, ARRAYS, estimator, declared=declared)
            )
            found[f"{name}_{said}_microseconds"] = took / samples * 1e6

        if samples <= 1_000_000:
            found[f"{name}_mean_microseconds"] = (
                cpu_seconds(samples, plain(users, windows)) / samples * 1e6
            )

    return found


def large(samples: int, users: int, estimator: str) -> dict[str, float]:
    """Measure many users with few samples each."""
    began = time.perf_counter()
    seconds = cpu_seconds(samples, private(users, 1, ARRAYS, estimator))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10
    return {"cpu_seconds": seconds, "seconds": time.perf_counter() - began, "peak_mebibytes": peak}


def main() -> None:
    """Measure, print, fail where a goal is missed."""
    os.environ.setdefault("MEANSTREAM_SECRET", "6dc4c01b6b494373b7fb165cabd569fc")
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--samples", type=int, default=1_000_000)
    parser.add_argument("--users", type=int, default=10_000)
    parser.add_argument("--estimator", default="one_shot")
    parser.add_argument("--large", action="store_true")
    parser.add_argument("--windows", action="store_true")

    parser.add_argument("--budget", action="store_true")
    parser.add_argument("--shapes", action="store_true")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()

    if options.windows:
        found = many_windows(600, options.estimator)
    elif options.budget:
        found = waiting(600)
    elif options.shapes:
        found = shapes(options.estimator)
    elif options.large:
        found = large(10_000_000, 1_000_000, options.estimator)
    else:
        found = compare(options.samples, options.users, options.estimator)

    if options.json:
        print(json.dumps(found))
    else:
        for name, value in found.items():
            goal = f"  (goal: at most {GOALS[name]})" if name in GOALS else ""
            print(f"{name:28} {value:10.3f}{goal}")

    missed = [name for name, goal in GOALS.items() if found.get(name, 0.0) > goal]
    if missed:
        raise SystemExit(f"missed: {', '.join(missed)}")


if __name__ == "__main__":
    main()
