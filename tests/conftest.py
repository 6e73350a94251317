"""Which tests run when: everyday, in the gate, or in the whole suite. No test fails for being slow.

- `make check` leaves out `slow` (by the durations file), `servers` and `full`.
- `make test` leaves out `full`.
- Both run a seeded third of each slow grid of parameters, the same one.
- `make test-all` runs everything.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from tests.beam_once import looked_at_once
from tests.kept_durations import SLOW, Meter, Recorder, known_durations
from tests.scheduling import WaitAndCompute
from tests.seeded import secrets_from_a_seed  # noqa: F401
from tests.seeded_grids import drawn_out, seed_of_commit

# A machine with much else to do is no fault. The same examples each time: a commit is good or not.
# Others are tried by `pytest --hypothesis-profile=searching`.
settings.register_profile(
    "searching", settings.default, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile(
    "repeated", settings.get_profile("searching"), derandomize=True, database=None
)
settings.load_profile("repeated")

SERVERS = Path(__file__).parent / "servers"
PACKAGE = Path(__file__).parents[1] / "meanstream"
STARTED_BY = {"broker_address", "own_broker", "flink", "own_flink"}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--durations-file", action="store_true", help="write tests/durations.json again"
    )
    parser.addoption(
        "--grids",
        metavar="SEED",
        help="run a seeded third of each slow grid; `commit` is HEAD's hash",
    )


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--durations-file"):
        config.pluginmanager.register(Meter())
    if hasattr(config, "workerinput"):  # a worker of pytest-xdist: the controller does the rest
        return
    if config.getoption("--durations-file"):
        config.pluginmanager.register(Recorder())
    if config.option.grids == "commit":
        config.option.grids = seed_of_commit()


def pytest_report_header(config: pytest.Config) -> str | None:
    seed = config.option.grids
    return f"grids: a third of each slow one, --grids {seed}" if seed else None


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> WaitAndCompute | None:
    return WaitAndCompute(config, log) if config.option.dist == "loadfile" else None


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Leave out modules without an example: to import them all takes each worker ten seconds."""
    if collection_path.suffix == ".py" and PACKAGE in collection_path.parents:
        return True if ">>>" not in collection_path.read_text(encoding="utf-8") else None
    return None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    durations = known_durations()
    for item in items:
        if SERVERS in item.path.parents or STARTED_BY & set(getattr(item, "fixturenames", ())):
            item.add_marker("servers")
        if durations.get(item.nodeid, 0.0) > SLOW:
            item.add_marker("slow")
    longest_files_first(items, durations)
    if config.option.grids:
        optional = (item for item in items if not item.get_closest_marker("always"))
        out = drawn_out(optional, durations, config.option.grids)
        config.hook.pytest_deselected(items=[item for item in items if item.nodeid in out])
        items[:] = [item for item in items if item.nodeid not in out]


def longest_files_first(items: list[pytest.Item], durations: dict[str, float]) -> None:
    """Sort the files, not the tests in them, by their known seconds: no worker ends long after the
    others."""
    seconds: Counter[Path] = Counter()
    for item in items:
        seconds[item.path] += durations.get(item.nodeid, 0.0)
    items.sort(key=lambda item: (-seconds[item.path], str(item.path)))


@pytest.fixture(autouse=True)
def _lines_of_other_tests_are_forgotten() -> None:
    """Let each test log what another one has logged within the same second: such lines are left out
    of a log."""
    for name in ("meanstream.kafka", "meanstream.delivery"):
        for kept in logging.getLogger(name).filters:
            getattr(kept, "_said", {}).clear()


@pytest.fixture(autouse=True, scope="session")
def _beam_looks_once() -> Iterator[None]:
    with looked_at_once():
        yield
