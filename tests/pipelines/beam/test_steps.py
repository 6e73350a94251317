"""What a runner logs of an error in a step: never the text of one that is not ours."""

from __future__ import annotations

import inspect
import logging
import pkgutil
from collections.abc import Callable, Iterator
from importlib import import_module
from importlib.util import find_spec, module_from_spec
from pathlib import Path
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.runners.worker import statecache
from apache_beam.transforms.core import _check_fn_use_yield_and_return

from meanstream import pipelines
from meanstream.operators.agents.agents import Agents
from meanstream.operators.noise.fixed_point import FixedPoint
from meanstream.operators.validation import require
from meanstream.pipelines.beam.keyed_state.beam_state import weigh_state_by_length
from meanstream.pipelines.beam.worker.beam_steps import Step, StepError, discreet_step
from meanstream.streaming.rounds.window_round import WindowRound
from meanstream.streaming.store.state_store import StoreError
from tests.pipelines.beam.support.collecting import run
from tests.pipelines.command_line import SECRET, Ran, meanstream

DATUM = "271828.5"
BROKEN: dict[str, tuple[type, str, list[str]]] = {
    "agents": (Agents, "update_points", ["--delta", "1e-6"]),
    "rounds": (
        WindowRound,
        "charged_reports",
        ["--user", "agent", "--window", "1d", "--estimator", "one_shot"],
    ),
}


def foreign(*_: Any, **__: Any) -> Any:
    raise ValueError(f"could not use {DATUM}")


def run_on_beam(command: str, folder: Path, *more: str) -> Ran:
    rows = (f"a{i % 3},0.{i},{1_600_000_000 + 60 * i}" for i in range(60))
    (folder / "samples.csv").write_text("\n".join(["agent,value,time", *rows]) + "\n")
    given = {
        "source": "samples.csv",
        "lower": 0,
        "upper": 1,
        "epsilon": 1,
        "name": "steps",
        "store": "state.db",
    }
    words = [word for name, value in given.items() for word in (f"--{name}", str(value))]
    to = ["--sink", "out.jsonl", "--runner", "FnApiRunner"]
    return meanstream("run", command, *words, *to, *more, environment={"MEANSTREAM_SECRET": SECRET})


@pytest.mark.parametrize("command", BROKEN)
def test_a_foreign_error_on_a_worker_shows_no_text(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    kind, method, more = BROKEN[command]
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(kind, method, foreign)
    with caplog.at_level(logging.ERROR):
        ran = run_on_beam(command, tmp_path, *more)
    assert ran.code == 1
    assert "StepError: ValueError at test_steps.py" in ran.err.decode()
    assert "[while running " in caplog.text
    assert DATUM not in ran.err.decode() + caplog.text


class Gives(Step):
    """Raises while it gives elements."""

    def process(self, element: int) -> Iterator[int]:
        yield element
        foreign()


class Twin(beam.DoFn):  # type: ignore[misc]
    """Known-bad: a step as Beam has it."""

    def process(self, element: int) -> Iterator[int]:
        yield element
        foreign()


def _foreign(_: int) -> int:
    foreign()
    return 0


class Maps(Step):
    """Raises in what it has only prepared."""

    def process(self, element: int) -> Iterator[int]:
        return map(_foreign, [element])


@pytest.mark.parametrize(("kind", "shown"), [(Gives, False), (Maps, False), (Twin, True)])
def test_neither_does_one_in_the_midst_of_elements(
    kind: type[beam.DoFn], shown: bool, caplog: pytest.LogCaptureFixture
) -> None:
    with (
        caplog.at_level(logging.ERROR),
        pytest.raises(Exception, match=r"ValueError|could not use") as raised,
    ):
        run([1, 2, 3], beam.ParDo(kind()))
    assert (DATUM in caplog.text) is shown
    assert (DATUM in str(raised.value)) is shown


def test_errors_of_ours_and_of_memory_are_themselves() -> None:
    for error in (StoreError("store must be a file"), MemoryError()):
        with pytest.raises(type(error)) as raised:
            discreet_step(_raising(error))()
        assert raised.value is error


def test_a_rule_of_ours_is_told_and_what_fails_below_it_is_not() -> None:
    with pytest.raises(ValueError, match=r"^shards must be 8, got 4$"):
        discreet_step(require)(False, "shards", "be 8", 4)
    text: Any = [f"{DATUM} minutes"]
    with pytest.raises(ValueError, match=DATUM):
        FixedPoint(0, 1).encode(text)
    with pytest.raises(
        StepError, match=r"^ValueError at fixed_point.py:\d+ encode \(its text is not shown"
    ):
        discreet_step(FixedPoint(0, 1).encode)(text)


def test_of_an_error_of_the_system_its_own_words_are_shown() -> None:
    with pytest.raises(StepError, match=r"^FileNotFoundError at .*: No such file or directory$"):
        discreet_step(open)("no such place")


def _raising(error: Exception) -> Callable[[], None]:
    def raised() -> None:
        raise error

    return raised


def steps() -> set[type]:
    """Everything of the package that a runner calls by its methods."""
    found = set()
    for module in pkgutil.walk_packages(pipelines.__path__, "meanstream.pipelines."):
        for kind in vars(import_module(module.name)).values():
            if (
                inspect.isclass(kind)
                and issubclass(kind, beam.DoFn | beam.CombineFn)
                and "meanstream" in kind.__module__
            ):
                found.add(kind)
    return found


def test_no_step_makes_beam_warn_of_yield_and_return() -> None:
    warned = [
        kind.__name__
        for kind in steps()
        if issubclass(kind, beam.DoFn) and _check_fn_use_yield_and_return(kind.process)
    ]
    assert warned == []


def test_every_step_of_the_package_is_discreet_and_so_is_what_a_timer_calls() -> None:
    """A step that is added as Beam has it fails here."""
    assert len(steps()) > 40
    assert [kind for kind in steps() if not issubclass(kind, Step)] == []
    timed = {kind.due for kind in steps() if getattr(kind, "TIMER", "")}
    assert len(timed) >= 6
    assert all(hasattr(callback, "__wrapped__") for callback in timed)


def test_beam_walks_over_all_modules_to_weigh_a_state_and_we_do_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Once Beam's own weight of bytes walks no more, `weigh_state_by_length` may go."""
    spec = find_spec("apache_beam.runners.worker.statecache")
    assert spec is not None
    assert spec.loader is not None
    beams_own = module_from_spec(spec)
    spec.loader.exec_module(beams_own)
    walks: list[int] = []
    monkeypatch.setattr(
        "objsize.traverse._iter_modules_globals", lambda: walks.append(1) or iter(())
    )
    assert beams_own.get_deep_size([b"a"]) > 1
    assert walks
    weigh_state_by_length()
    walks.clear()
    assert statecache.get_deep_size([b"a"]) > 1
    assert not walks
