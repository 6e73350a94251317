"""How each option of a run bears on privacy.

The one list that `meanstream explain --diff` reads.
"""

from __future__ import annotations

from enum import StrEnum


class Bearing(StrEnum):
    """What another value of an option means for whoever is protected."""

    PROMISE = "promise"
    """It is part of the promise, whose facts are compared: budget, unit, trust, releases."""
    UNIT = "unit"
    """A column that says who or what is protected: without it, or with another, the promise is for
    somebody else."""
    DEPLOYMENT = "deployment"
    """It names the deployment: another one spends a budget of its own on the same data."""
    PUBLIC = "public"
    """A place of public output: a new one shows more."""
    PRIVATE = "private"
    """A place of private output: a new one, or another one, may have other readers."""
    ACCESS = "access"
    """A switch that lets other machines in."""
    NOTED = "noted"
    """It changes what is answered or how; no side has more or less of the privacy that was
    promised."""
    NONE = "none"
    """It has no bearing on privacy: how samples are read, waited for and logged."""


_STREAM = {
    **dict.fromkeys(("name",), Bearing.DEPLOYMENT),
    **dict.fromkeys(("id",), Bearing.UNIT),
    **dict.fromkeys(("epsilon", "mode"), Bearing.PROMISE),
    **dict.fromkeys(("notices", "metrics", "page"), Bearing.PUBLIC),
    **dict.fromkeys(("private_metrics", "private_figures"), Bearing.PRIVATE),
    **dict.fromkeys(("page_remote",), Bearing.ACCESS),
    **dict.fromkeys(
        ("source", "value", "time", "lower", "upper", "secret_file", "store", "runner"),
        Bearing.NOTED,
    ),
    **dict.fromkeys(
        ("config", "layout", "numbers_in_text", "sort", "follow", "until_end", "offsets"),
        Bearing.NONE,
    ),
    **dict.fromkeys(
        ("batch_size", "max_future", "max_dead_letters", "json", "level", "runner_arg"),
        Bearing.NONE,
    ),
    **dict.fromkeys(("dry_run", "wait_for", "log_format", "quiet"), Bearing.NONE),
}
AGENTS_BEARING = _STREAM | {
    **dict.fromkeys(("agent", "person"), Bearing.UNIT),
    **dict.fromkeys(
        ("delta", "odds", "per_person", "counter", "noise", "calibration", "levels"),
        Bearing.PROMISE,
    ),
    **dict.fromkeys(("horizon", "memory", "spread_share", "histogram_share"), Bearing.PROMISE),
    **dict.fromkeys(("dead_letters", "releases", "population"), Bearing.PUBLIC),
    **dict.fromkeys(("sink", "answers"), Bearing.PRIVATE),
    **dict.fromkeys(("answers_remote",), Bearing.ACCESS),
    **dict.fromkeys(
        ("schedule", "final_release", "exceeds", "quantiles", "covariates"), Bearing.NOTED
    ),
    **dict.fromkeys(("partners", "members", "variance"), Bearing.NOTED),
    **dict.fromkeys(("answer_tokens",), Bearing.NOTED),
    **dict.fromkeys(("lateness", "quorum", "idle_after", "max_agents"), Bearing.NONE),
    **dict.fromkeys(("collaboration", "stddev", "refresh", "weights", "coverage"), Bearing.NONE),
}
"""Of `run agents`."""
ROUNDS_BEARING = _STREAM | {
    **dict.fromkeys(("user",), Bearing.UNIT),
    **dict.fromkeys(("window", "estimator", "option", "user_budget"), Bearing.PROMISE),
    **dict.fromkeys(("sink", "reports", "stages", "reports_only"), Bearing.PUBLIC),
    **dict.fromkeys(("dead_letters",), Bearing.PRIVATE),
    **dict.fromkeys(
        ("values", "sizes", "users", "between_users", "tails", "from_reports"), Bearing.NOTED
    ),
    **dict.fromkeys(("categories", "quantiles"), Bearing.NOTED),
    **dict.fromkeys(("allowed_lateness", "max_users"), Bearing.NONE),
}
"""Of `run rounds`."""
