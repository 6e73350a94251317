"""Public predictions of the users of a frame, from a second frame."""

from __future__ import annotations

from typing import Any

from meanstream.operators.validation import require
from meanstream.pipelines.frames.frame_reader import frame_column_names, frame_columns
from meanstream.streaming.rounds.predictions_table import PredictionsTable
from meanstream.streaming.rounds.rounds_settings import RoundsSettings


def predicted_column(frame: Any, by: str, time: str) -> str:
    """Name the column of predictions: the one that is neither of users nor of times."""
    known = frame_column_names(frame, option="prediction")
    others = [name for name in known if name not in (by, time)]
    rule = f"have {by!r} and one other column besides {time!r}"
    require(by in known and len(others) == 1, "prediction", rule, ", ".join(known))
    return others[0]


def frame_predictions(frame: Any, settings: RoundsSettings, by: str, time: str) -> PredictionsTable:
    """Read a frame of predictions."""
    names = frame_column_names(frame, option="prediction")
    table = frame_columns(frame, names, option="prediction", needed=names)
    lower, upper = map(float, settings.ends)

    return PredictionsTable.of(
        table,
        str(settings.prediction),
        user=by,
        time=time,
        windows=settings.windows,
        ends=(lower, upper),
    )
