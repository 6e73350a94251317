"""What the parameters of a template look like.

One pattern each, checked by Dataflow and again by the launcher.

The patterns are anchored and have no look-around, so that RE2, Java and JavaScript read them as
Python does.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from meanstream.operators.collaboration.anytime_intervals import COVERAGES
from meanstream.operators.collaboration.registry import COLLABORATIONS
from meanstream.operators.durations import DURATION_RULE
from meanstream.operators.estimators.registry import ESTIMATORS, estimator_class
from meanstream.operators.validation import require
from meanstream.pipelines.beam.worker.worker_secret import RESOURCE

_DIGITS = r"([0-9]+(\.[0-9]*)?|\.[0-9]+)"
_EXPONENT = r"([eE][+-]?[0-9]{1,3})?"
_POSITIVE = rf"(0*[1-9][0-9]*(\.[0-9]*)?|0*\.0*[1-9][0-9]*){_EXPONENT}"
_NUMBER = rf"[+-]?{_DIGITS}{_EXPONENT}"
_COUNT = r"[1-9][0-9]*"
_DURATION = rf"{_DIGITS}(min|[smhdw])"
_SPAN = r"(0*[1-9][0-9]*(\.[0-9]*)?|0*\.0*[1-9][0-9]*)(min|[smhdw])"
_COLUMN = r"[^\x00-\x1f,]+"
_BROKER = r"([A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(:[0-9]{1,5})?"
_TOPIC = rf"kafka://{_BROKER}(,{_BROKER})*/[A-Za-z0-9._-]{{1,249}}(\?[A-Za-z]+=[^&\s]+(&[A-Za-z]+=[^&\s]+)*)?"
_PUBSUB = r"projects/[a-z][-a-z0-9:.]{4,61}[a-z0-9]/%s/[A-Za-z][-A-Za-z0-9._~+%%]{2,254}"
_PLACE = r"(gs://[a-z0-9][a-z0-9._-]{1,220}[a-z0-9])?/[^\x00-\x1f]+"
_TABLE = r"\.(csv|tsv|jsonl|ndjson|parquet)(\.gz|\.zip)?"


@dataclass(frozen=True, slots=True)
class Form:
    """A form of text, and what it becomes.

    Attributes
    ----------
    pattern : str
        The whole text matches it; empty if it is one of `choices`.
    rule : str
        In words, as a refusal ends: "must ...".
    convert : callable
        From text to the value of the option.
    param_type : str
        `google.cloud.dataflow_v1beta3.ParameterType`, which chooses the console's input.
    choices : tuple of str
        All that there are.
    """

    pattern: str
    rule: str
    convert: Callable[[str], Any] = str
    param_type: str = "TEXT"
    choices: tuple[str, ...] = ()

    @property
    def regex(self) -> str:
        """The pattern for the template's metadata."""
        return f"^({self.pattern or '|'.join(map(re.escape, self.choices))})$"

    def read(self, name: str, text: str) -> Any:
        """Convert a text.

        Raises
        ------
        ValueError
            Naming the parameter, the rule and the text.

        Examples
        --------
        >>> POSITIVE.read("epsilon", "-1")
        Traceback (most recent call last):
        ValueError: epsilon must be a positive number, got '-1'
        """
        # Python's $ matches before a last line end, too.
        require(
            re.match(self.regex, text) is not None and not text.endswith("\n"),
            name,
            self.rule,
            text,
        )

        return self.convert(text)


def choice_form(*choices: str) -> Form:
    """Make the form of one of several words."""
    return Form("", f"be one of {', '.join(choices)}", param_type="ENUM", choices=choices)


def _words(text: str) -> list[str]:
    return text.split(";")


NUMBER = Form(_NUMBER, "be a number", float)
POSITIVE = Form(_POSITIVE, "be a positive number", float)
NOT_NEGATIVE = Form(rf"{_DIGITS}{_EXPONENT}", "be a number that is not negative", float)
COUNT = Form(_COUNT, "be a whole number from 1 on", int)
FLAG = Form(
    "true|false",
    "be true or false",
    lambda text: text == "true",
    param_type="BOOLEAN",
    choices=("true", "false"),
)
DURATION = Form(_DURATION, DURATION_RULE)
SPAN = Form(_SPAN, DURATION_RULE + ", longer than nothing")
COLUMN = Form(_COLUMN, "be the name of a column")
COLUMNS = Form(rf"{_COLUMN}(,{_COLUMN})+", "be names of columns x,y,z")
CATEGORIES = Form(COLUMNS.pattern, "be categories a,b,c")
BOUND = Form(rf"{_NUMBER}(,{_NUMBER})*", "be a number, or one for each of values: x,y,z")
NUMBERS = Form(rf"{_NUMBER}(,{_NUMBER})*", "be numbers separated by commas")
WINDOW = Form(
    rf"{_SPAN}(,{_SPAN})?|session:{_SPAN}|(day|week(:[a-z]+)?|month|quarter|year)(@[A-Za-z0-9_+/-]+)?",
    "be SIZE (7d), SIZE,PERIOD (7d,1d), session:GAP (session:30m) or a unit of the calendar (month@Europe/Berlin)",
)
SCHEDULE = Form(
    rf"preferred:{_COUNT}|geometric:{_COUNT},{_POSITIVE}|every:{_SPAN}",
    "be preferred:FIRST, geometric:FIRST,FACTOR or every:DURATION (such as preferred:10 or every:1d)",
)
MEMORY = Form(
    rf"forever|auto|(half-life|window):({_COUNT}|{_SPAN})",
    "be forever, auto, half-life:LENGTH or window:LENGTH, of samples or a duration (as half-life:5000 or window:12w)",
)
SIZES = Form(
    rf"unknown|[a-z]+:{_NUMBER}(,{_NUMBER})*",
    "be a law such as point:4, poisson:3.5, lognormal:10,1, or unknown",
)
OWN_OPTIONS = Form(
    r"[a-z_]+=[^;=\s]+(;[a-z_]+=[^;=\s]+)*", "be NAME=VALUE, several separated by ';'", _words
)
NAME = Form(r"[^/\x00-\x1f]+", "have no '/'")
SOURCE = Form(
    rf"{_PLACE}{_TABLE}|{_TOPIC}|{_PUBSUB % 'subscriptions'}",
    "be gs://BUCKET/FILE or /FILE of type .csv, .tsv, .jsonl, .ndjson (also .gz, .zip) or .parquet, "
    "kafka://HOST:PORT/TOPIC or projects/PROJECT/subscriptions/NAME",
)
SINK = Form(
    rf"{_PLACE}\.jsonl|{_TOPIC}|{_PUBSUB % 'topics'}",
    "be gs://BUCKET/FILE.jsonl, /FILE.jsonl, kafka://HOST:PORT/TOPIC or projects/PROJECT/topics/NAME",
)
SECRET = Form(
    rf"{RESOURCE}|/[^\x00-\x1f]+",
    "be projects/PROJECT/secrets/NAME/versions/NUMBER, a numbered version, or the path of a file on every worker",
)
IMAGE = Form(
    r"[a-z0-9][A-Za-z0-9._:/-]*[:@][A-Za-z0-9._:-]+",
    "be an image with its tag or digest, such as REGISTRY/NAME:TAG",
)
_OF_USERS = tuple(name for name in ESTIMATORS if estimator_class(name).privacy_unit == "user")
CURATORS = ", ".join(name for name in _OF_USERS if estimator_class(name).trust == "central")
ESTIMATOR = choice_form(*_OF_USERS)
COLLABORATION = choice_form(*COLLABORATIONS)
MODE = choice_form("tuned", "paper")
TAILS = choice_form("exponential")
NOISE = choice_form("auto", "laplace", "staircase", "gaussian")
COVERAGE = choice_form(*COVERAGES)
CALIBRATION = choice_form("analytic", "classical")
COUNTER = choice_form("optimal", "toeplitz", "pm1", "pm2", "two_level")


def form_named(name: str) -> Form:
    """Give the form that a declaration names."""
    form: Form = globals()[name.upper()]
    return form
