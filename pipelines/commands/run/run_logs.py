"""Logs of a running engine on standard error.

A readable line per record, or one JSON object per line.
"""

from __future__ import annotations

import json
import logging
import math
import sys
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

from meanstream.pipelines.options.option_errors import BadOption, RunFailed
from meanstream.pipelines.own_errors import describe_own_error, is_own_error

LOGGER = "meanstream"
"""Parent of all our loggers:
`logging.getLogger("meanstream.engine").info("started", extra={"agents": 3})`."""

_STANDARD = set(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
_log = logging.getLogger(f"{LOGGER}.run")


@contextmanager
def logging_to_stderr(log_format: str, *, quiet: bool = False) -> Iterator[None]:
    """Write records of the logger `meanstream`.

    With JSON also how the run ends, so that nothing else is written.

    Notes
    -----
    **Privacy.** Logs leave the trust domain, so a record holds plain public figures and names. What is not plain (an
    array, a list) is shown by its type. An exception is shown as its type and place; its message only where it is one
    of ours, whose messages never hold a datum.
    """
    if log_format not in FORMATS:
        raise BadOption(f"log_format must be one of {', '.join(FORMATS)}, got {log_format!r}")
    handler = _StandardError()
    handler.setFormatter(FORMATS[log_format]())
    logger = logging.getLogger(LOGGER)
    before = logger.level, logger.propagate
    logger.addHandler(handler)
    logger.setLevel(logging.WARNING if quiet else logging.INFO)
    logger.propagate = False

    try:
        if log_format == "json":
            with _logging_the_end():
                yield
        else:
            yield
    finally:
        logger.removeHandler(handler)
        logger.level, logger.propagate = before


@contextmanager
def _logging_the_end() -> Iterator[None]:
    try:
        yield
    except BadOption as error:
        _log.error("refused", extra={"reason": str(error)})
        sys.exit(2)
    except RunFailed as error:
        _log.error("failed", extra={"reason": str(error)})
        sys.exit(1)
    except Exception:
        _log.critical("crashed", exc_info=True)
        sys.exit(1)


class _StandardError(logging.StreamHandler[Any]):
    """Writes to what standard error is at the time, which a live line replaces by its own."""

    def __init__(self) -> None:
        logging.Handler.__init__(self)

    @property
    def stream(self) -> Any:
        return sys.stderr

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - its name in the standard library
        """Drop a record that cannot be written: to say what was in it could say too much."""


class _JsonFormatter(logging.Formatter):
    """One JSON object per record: time, level, logger, event, and the record's fields.

    Examples
    --------
    >>> record = logging.makeLogRecord({"name": "meanstream.engine", "levelno": 20, "levelname": "INFO",
    ...                                 "msg": "started", "created": 0.0, "agents": 3})
    >>> _JsonFormatter().format(record)[38:]
    'level": "info", "logger": "meanstream.engine", "event": "started", "agents": 3}'
    """

    def format(self, record: logging.LogRecord) -> str:
        """Write the four that every record has first; no field replaces them."""
        head = _head(record)
        return json.dumps({**head, **_fields_of_record(record), **head})


class _TextFormatter(logging.Formatter):
    """One line per record: time, level, logger, event, and the record's fields as `name=value`.

    Examples
    --------
    >>> record = logging.makeLogRecord({"name": "meanstream.engine", "levelno": 20, "levelname": "INFO",
    ...                                 "msg": "started", "created": 0.0, "agents": 3, "source": "a b.csv"})
    >>> _TextFormatter().format(record)
    '1970-01-01T00:00:00.000Z info meanstream.engine: started agents=3 source="a b.csv"'
    """

    def format(self, record: logging.LogRecord) -> str:
        """Quote what a terminal or a reader of words could misunderstand."""
        head = _head(record)
        words = [f"{name}={_word(value)}" for name, value in _fields_of_record(record).items()]
        return " ".join(
            [head["time"], head["level"], f"{head['logger']}:", _printable(head["event"]), *words]
        )


FORMATS: dict[str, type[logging.Formatter]] = {"text": _TextFormatter, "json": _JsonFormatter}


def _fields_of_record(record: logging.LogRecord) -> dict[str, Any]:
    """Give the record's fields (its `extra`) as plain values, and what it says of an exception."""
    fields = {
        name: _plain_or_type(value) for name, value in vars(record).items() if name not in _STANDARD
    }
    if record.exc_info and record.exc_info[1] is not None:
        fields.update(describe_own_error(record.exc_info[1]))

    return fields


def _plain_or_type(value: Any) -> Any:
    """Give numbers, texts and mappings of them as they are; of anything else only its type.

    Examples
    --------
    >>> _plain_or_type({"late": 3}), _plain_or_type([1.5, 2.5]), _plain_or_type(float("inf"))
    ({'late': 3}, '<list>', None)
    """
    if isinstance(value, float):
        if math.isfinite(value):
            return value
        return None

    if value is None or isinstance(value, bool | int | str):
        return value

    if isinstance(value, Mapping):
        return {
            str(k): _plain_or_type(v) if not isinstance(v, Mapping) else "<mapping>"
            for k, v in value.items()
        }

    return f"<{type(value).__name__}>"


def log_lines_of_defect(error: BaseException) -> str:
    r"""Where an error that no one expected was raised, without the text of any that is not ours.

    Examples
    --------
    >>> log_lines_of_defect(ValueError("could not convert 12.5"))
    'ValueError (its text is not shown: it may hold a value)\n'
    """
    earlier = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    lines = [] if earlier is None else [log_lines_of_defect(earlier), "\nThen:\n\n"]
    frames = traceback.format_list(traceback.extract_tb(error.__traceback__))
    if frames:
        lines += ["Traceback (most recent call last):\n", *frames]

    text = " ".join(str(error).split()) if is_own_error(error) else ""
    shown = f": {text}" if text else " (its text is not shown: it may hold a value)"
    return "".join([*lines, type(error).__name__, shown, "\n"])


def _head(record: logging.LogRecord) -> dict[str, str]:
    time = (
        datetime.fromtimestamp(record.created, UTC)
        .isoformat(timespec="milliseconds")
        .replace("+00:00", "Z")
    )

    return {
        "time": time,
        "level": record.levelname.lower(),
        "logger": record.name,
        "event": record.getMessage(),
    }


def _word(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value)
    bare = text.isprintable() and text.isascii() and not (set(text) & set(' "=')) and text

    if bare or not isinstance(value, str):
        return text
    return json.dumps(value)


def _printable(text: str) -> str:
    if text.isprintable():
        return text
    return json.dumps(text)[1:-1]
