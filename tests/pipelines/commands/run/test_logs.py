"""Logs: a readable line or a JSON object per record, plain fields only, and how a run ends."""

from __future__ import annotations

import importlib.util
import io
import json
import logging
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from meanstream.pipelines.commands.run import progress_line as progress
from meanstream.pipelines.commands.run.run_logs import (
    describe_own_error,
    log_lines_of_defect,
    logging_to_stderr,
)
from meanstream.pipelines.options.option_errors import BadOption, RunFailed
from meanstream.streaming.engine.engine_stats import EngineStats
from meanstream.streaming.store.state_store import StoreError
from tests.pipelines.command_line import SECRET, arguments, meanstream, options, write_samples

LOG = logging.getLogger("meanstream.engine")
TIME = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z"


def logged(log_format: str, work: Callable[[], Any], *, quiet: bool = False) -> list[str]:
    """Lines on standard error while some work is done, however it ends."""
    before, sys.stderr = sys.stderr, io.StringIO()
    try:
        with logging_to_stderr(log_format, quiet=quiet):
            work()
    except SystemExit as end:
        sys.stderr.write(f"exit {end.code}\n")
    finally:
        stream, sys.stderr = sys.stderr, before
    text: str = stream.getvalue()
    return text.splitlines()


def records(work: Callable[[], Any], *, quiet: bool = False) -> list[dict[str, Any]]:
    return [json.loads(line) for line in logged("json", work, quiet=quiet)]


def raises(error: Exception) -> Callable[[], None]:
    def work() -> None:
        raise error

    return work


def test_a_record_as_json() -> None:
    (record,) = records(
        lambda: LOG.info("started", extra={"source": 'a "b"\n.csv', "agents": 3, "late": None})
    )
    assert re.fullmatch(TIME, record.pop("time"))
    assert record == {
        "level": "info",
        "logger": "meanstream.engine",
        "event": "started",
        "source": 'a "b"\n.csv',
        "agents": 3,
        "late": None,
    }


def test_a_record_as_text() -> None:
    fields = {
        "source": "a b.csv",
        "agents": 3,
        "rejected": {"late": 2},
        "empty": "",
        "store": "/x/s.db",
    }
    (line,) = logged("text", lambda: LOG.warning("brokers %s", "are back", extra=fields))
    assert re.fullmatch(
        TIME
        + re.escape(
            ' warning meanstream.engine: brokers are back source="a b.csv" agents=3 rejected={"late": 2}'
        )
        + re.escape(' empty="" store=/x/s.db'),
        line,
    )


@pytest.mark.parametrize("log_format", ["text", "json"])
def test_one_line_per_record_whatever_is_in_it(log_format: str) -> None:
    nasty = "two\nlines \x1b[31mred\u2028 \udcff"
    (line,) = logged(log_format, lambda: LOG.info(nasty, extra={"source": nasty}))
    assert line.isprintable()
    assert "two\\nlines" in line


def test_fields_do_not_replace_what_every_record_has() -> None:
    fields = {"time": "never", "level": "none", "logger": "other", "event": "another", "n": 1}
    (record,) = records(lambda: LOG.info("started", extra=fields))
    assert (record["level"], record["logger"], record["event"]) == (
        "info",
        "meanstream.engine",
        "started",
    )
    assert re.fullmatch(TIME, record["time"])
    assert record["n"] == 1


def test_what_is_not_plain_is_shown_by_its_type() -> None:
    fields = {
        "array": np.array([12.5]),
        "list": [12.5],
        "number": np.float64(12.5),
        "whole": np.int64(7),
        "deep": {"a": {"b": 12.5}, "c": [12.5]},
        "infinite": float("inf"),
    }
    (record,) = records(lambda: LOG.info("x", extra=fields))
    assert {name: record[name] for name in fields} == {
        "array": "<ndarray>",
        "list": "<list>",
        "number": 12.5,  # a float like any other
        "whole": "<int64>",
        "deep": {"a": "<mapping>", "c": "<list>"},
        "infinite": None,
    }


def test_an_exception_is_its_type_and_place_and_says_more_only_if_it_is_ours() -> None:
    def work() -> None:
        for error in (
            ValueError("could not convert 271828.5"),
            StoreError("store must be\nwritable"),
            OSError(28, "full", 271828.5),
        ):
            try:
                raise error
            except Exception:
                LOG.exception("went wrong")

    foreign, ours, system = records(work)
    assert foreign["error"] == "ValueError"
    assert re.fullmatch(r"test_logs\.py:\d+ work", foreign["at"])
    assert "271828.5" not in json.dumps([foreign, system])
    assert ours["reason"] == "store must be writable"
    assert system["reason"] == "No space left on device"


class CousinError(StoreError):
    """Somebody else's error that inherits from one of ours."""


def foreign_errors(folder: Path) -> list[Exception]:
    """Errors that are not ours, under the names that ours have or once had."""
    (folder / "stranger.py").write_text("class StoreError(Exception): pass\n")
    found: list[Exception] = [
        CousinError("271828.5"),
        OSError("271828.5"),
        OSError(28, "271828.5"),
        OSError("x", "271828.5"),
    ]
    for name in (
        "meanstream_x",
        "streaming",
        "operators.agents",
        "pipelines",
        "meanstream.plugin",
        "meanstream.x.y",
    ):
        spec = importlib.util.spec_from_file_location(name, folder / "stranger.py")
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        try:
            spec.loader.exec_module(module)
        finally:
            del sys.modules[name]
        found.append(module.StoreError("271828.5"))
    # One that says it were ours, of a module that there is.
    found.append(
        type("StoreError", (Exception,), {"__module__": StoreError.__module__})("271828.5")
    )
    found.append(
        type("main", (Exception,), {"__module__": "meanstream", "__qualname__": "version"})(
            "271828.5"
        )
    )
    return found


def test_no_foreign_error_says_more_than_its_type(tmp_path: Path) -> None:
    def work() -> None:
        for error in foreign_errors(tmp_path):
            try:
                raise error
            except Exception:
                LOG.exception("went wrong")

    lines = logged("json", work)
    assert len(lines) == 12
    assert not any("271828.5" in line for line in lines)
    for error in foreign_errors(tmp_path):
        assert "271828.5" not in log_lines_of_defect(error)
    for ours in (StoreError("271828.5"), BadOption("271828.5"), RunFailed("271828.5")):
        assert "271828.5" in describe_own_error(ours)["reason"]


def test_of_a_chain_of_errors_none_that_is_foreign_says_its_text() -> None:
    try:
        try:
            float("271828.5x")
        except ValueError as error:
            raise StoreError("store must be writable") from error
    except StoreError as error:
        text = log_lines_of_defect(error)
    assert "271828.5" not in text.replace('float("271828.5x")', "")  # the line of code is no datum
    assert text.endswith("StoreError: store must be writable\n")


def test_quiet_leaves_warnings() -> None:
    def work() -> None:
        LOG.info("news")
        LOG.debug("details")
        LOG.warning("trouble")

    assert [record["event"] for record in records(work, quiet=True)] == ["trouble"]
    assert [record["event"] for record in records(work)] == ["news", "trouble"]


def test_an_unknown_format_is_refused() -> None:
    with (
        pytest.raises(BadOption, match=r"^log_format must be one of text, json, got 'xml'$"),
        logging_to_stderr("xml"),
    ):
        pass


def test_afterwards_all_is_as_before() -> None:
    logger = logging.getLogger("meanstream")
    before = (list(logger.handlers), logger.level, logger.propagate)
    logged("json", lambda: LOG.info("x"))
    logged("json", raises(BadOption("x")))
    assert (list(logger.handlers), logger.level, logger.propagate) == before


def test_a_record_that_cannot_be_written_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    with logging_to_stderr("json"):
        stream = io.StringIO()
        stream.close()
        monkeypatch.setattr(sys, "stderr", stream)
        LOG.warning("nobody hears")


@pytest.mark.parametrize(
    ("error", "event", "code"),
    [
        (BadOption("epsilon must be given"), "refused", 2),
        (RunFailed("the disk is full"), "failed", 1),
    ],
)
def test_with_json_the_end_of_a_run_is_a_record(error: Exception, event: str, code: int) -> None:
    line, end = logged("json", raises(error))
    record = json.loads(line)
    assert (record["event"], record["level"], record["reason"]) == (event, "error", str(error))
    assert end == f"exit {code}"


def test_with_json_a_defect_is_a_record_without_its_message() -> None:
    line, end = logged("json", raises(RuntimeError("271828.5 is not what I expected")))
    record = json.loads(line)
    assert (record["event"], record["level"], record["error"]) == (
        "crashed",
        "critical",
        "RuntimeError",
    )
    assert "271828.5" not in line
    assert end == "exit 1"


def test_with_text_the_command_line_says_how_a_run_ends() -> None:
    for error in (BadOption("x"), RunFailed("x"), RuntimeError("x")):
        with pytest.raises(type(error)), logging_to_stderr("text"):
            raise error


# -- of a run ------------------------------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_samples(tmp_path / "flights.csv")
    return tmp_path


def run(folder: Path, **changes: Any) -> list[dict[str, Any]]:
    typed = arguments(options(folder, log_format="json", **changes))
    ran = meanstream("run", "agents", *typed, environment={"MEANSTREAM_SECRET": SECRET})
    lines = ran.err.decode().splitlines()
    assert (ran.code == 0) == all('"level": "error"' not in line for line in lines)
    return [json.loads(line) for line in lines]


def test_the_records_of_a_run(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "PLAIN_SECONDS", 0.0)
    first = run(folder, metrics="127.0.0.1:0")
    assert [record["event"] for record in first[:2]] == ["metrics are served", "started"]
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+/metrics", first[0]["url"])
    assert first[1]["source"] == "flights.csv"
    assert (first[1]["agents"], first[1]["event_time"]) == (0, None)
    assert (first[2]["event"], first[2]["lateness"]) == ("samples may be late", "0s")
    assert {record["event"] for record in first[3:-1]} == {"estimates are due", "progress"}
    assert first[-1]["event"] == "finished"
    for record in first[-2:]:
        assert (record["events"], record["agents"], record["rejected"]) == (60, 3, {})
        assert record["event_time"] == "2013-01-03T11:00:00Z"
    again = run(folder)
    assert (again[0]["event"], again[0]["agents"], again[0]["event_time"]) == (
        "resumed",
        3,
        "2013-01-03T11:00:00Z",
    )


def test_logs_hold_no_figure_that_depends_on_values(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither clipped nor half-width, nor where in the file it is: the offset counts the digits of
    values."""
    monkeypatch.setattr(progress, "PLAIN_SECONDS", 0.0)
    text = json.dumps(run(folder, sort=False) + run(folder, sort=False))
    for word in ("clipped", "half_width", "position", "offset", "digest"):
        assert word not in text
    assert str((folder / "flights.csv").stat().st_size) not in re.findall(r"\d+", text)


def test_a_refused_option_of_a_run_is_a_record(folder: Path) -> None:
    assert [record["reason"] for record in run(folder, epsilon=-1)] == [
        "epsilon must be positive and finite, got -1.0"
    ]
    (refused,) = run(folder, metrics="nowhere")
    assert refused["reason"] == "metrics must be HOST:PORT, such as 127.0.0.1:9464, got 'nowhere'"


def test_with_text_a_run_says_where_it_begins(folder: Path) -> None:
    typed = arguments(options(folder))
    ran = meanstream("run", "agents", *typed, environment={"MEANSTREAM_SECRET": SECRET})
    first, *_, last = ran.err.decode().splitlines()
    assert re.match(
        TIME + r" info meanstream\.engine: started source=flights\.csv store=\S+ agents=0 ", first
    )
    assert last.startswith("60 events, 60 accepted")


def test_quiet_json_says_nothing_of_a_good_run(folder: Path) -> None:
    assert run(folder, quiet=True) == []


def test_logged_progress_comes_every_few_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    stats = EngineStats(events=1200, clipped=7, median_half_width=0.125, input_lag=5)

    def work() -> None:
        with progress.make_progress("json") as show:
            for seconds in (1.0, 5.0, 6.0, 11.0):
                now[0] = 100.0 + seconds
                show(stats)

    assert [(r["event"], r["events_per_second"], r["input_lag"]) for r in records(work)] == [
        ("progress", 240, 5),
        ("progress", 109, 5),
    ]
