"""Every surface of the product, enumerated once. `test_surfaces.py` compares this list with the
product itself.

A surface is what somebody can see. Of everybody's, every byte must be equal in two worlds that
differ in what is not theirs to know; of what is addressed, every byte that is addressed to another.
What is the operator's is inside the trust domain and is named here, so that nothing becomes private
by being forgotten.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple


class Reader(StrEnum):
    """Who reads a surface."""

    EVERYBODY = "everybody"
    OWNER = "its owner, line by line"
    OPERATOR = "the operator, inside the trust domain"


SINKS = {
    "releases": Reader.EVERYBODY,
    "estimates": Reader.OWNER,
    "population": Reader.EVERYBODY,
    "dead_letters": Reader.EVERYBODY,  # of rounds the operator's: their events are private
    "notices": Reader.EVERYBODY,
    "reports": Reader.EVERYBODY,
    "stages": Reader.EVERYBODY,
    "means": Reader.EVERYBODY,
}
"""Roles of sinks."""

EVENTS = {
    "sample": Reader.OPERATOR,
    "estimate": Reader.OWNER,
    "release": Reader.EVERYBODY,
    "pair_release": Reader.OWNER,  # its reader; no sink has it
    "population": Reader.EVERYBODY,
    "dead_letter": Reader.EVERYBODY,
    "private_dead_letter": Reader.OPERATOR,
    "budget": Reader.EVERYBODY,
    "refusal": Reader.EVERYBODY,
    "drift": Reader.EVERYBODY,
    "report": Reader.EVERYBODY,
    "charge": Reader.EVERYBODY,
    "stage_reports": Reader.EVERYBODY,
    "stage_result": Reader.EVERYBODY,
    "window_estimate": Reader.EVERYBODY,
    "round_refusal": Reader.EVERYBODY,
}
"""Topics of events."""

SINK_KINDS = {
    ".jsonl": "agents, rounds",
    ".parquet": "agents",
    "kafka:": "topics",
    "iceberg:": "elsewhere: tests/integrations/test_iceberg.py",
    "-": "federated",
}
"""Kinds of places, and the worlds that write to them; of releases alone, where their bytes are
compared."""

OUTPUT_OPTIONS = {
    **dict.fromkeys(
        ("sink", "releases", "population", "dead_letters", "notices", "reports", "stages"), "worlds"
    ),
    **dict.fromkeys(
        ("json", "as_json", "metrics", "page", "log_format", "quiet", "dry_run", "store", "to"),
        "worlds",
    ),
    **dict.fromkeys(("reports_only", "private_metrics", "private_figures"), "worlds"),
    **dict.fromkeys(("difference", "top"), "worlds"),
    "raw_to": "a file of the operator's",
    "answers": "an agent's own, by its token: tests/pipelines/commands/run/test_answers.py",
    "answers_remote": "says who may connect to the answers",
    "page_remote": "says who may connect to the page",
    "page_address": "of a demo, whose data are public",
    "out": "of reproductions and demos; `report`, whose file is an argument, is in the worlds",
}
"""Options that are declared to say where something is written or what is shown; `worlds` use
them."""

ARGUMENTS = {
    "name": "an agent or an event", "kind": "of options", "names": "of mechanisms", "configs": "files that are read",
    "address": "releases that are read", "agent": "of a store", "path": "flights that are read",
    "file": "a new key, new options, or a store that is read", "out": "of a report, which the worlds compare",
}  # fmt: skip
"""Arguments of commands. All other options are declared not to show anything: they say what is read
and how."""

COMMANDS = {
    "run agents": "agents, beam",
    "run agent-side": "federated",
    "run collaborate": "federated",
    "run rounds": "rounds, sides, curator",
    "report": "readers",
    "budget": "readers",
    "get": "readers",
    "ledger verify": "readers",
    "ledger backup": "readers",
    "ledger export": "readers",
    "ledger sign": "readers",
    "store show": "settings only",
    "store adopt": "settings only",
    "store move": "settings only",  # and how many agents, rows and samples: public, of agents
    "store forget": "settings only",  # and how many releases and waiting samples: public, of agents
    "dlq list": "readers",
    "dlq show": "readers",
    "dlq replay": "replay",
    "explain": "settings only",
    "explain agents": "settings only",
    "explain rounds": "settings only",
    "explain together": "settings only",
    "mcp": "elsewhere: tests/integrations/test_mcp.py",
    "plan agents": "settings only",
    "plan rounds": "settings only",
    "schema": "settings only",
    "init": "settings only",
    "simulate agents": "made-up data",
    "simulate rounds": "made-up data",
    "secret new": "no data",
    "audit mechanism": "no data",
    "audit engine": "made-up data",
    "audit rounds": "made-up data",
    "audit store": "readers",
    "audit topic": "readers",
    "theory agents": "settings only",
    "theory rounds": "settings only",
    "reproduce colme": "made-up data",
    "reproduce dame": "made-up data",
    "reproduce kent": "made-up data",
    "reproduce cummings": "made-up data",
    "reproduce drift": "made-up data",
    "reproduce ladder": "made-up data",
    "demo": "public data",
    "demo rounds": "public data",
    "demo flights": "public data",
}
"""Commands, and the world that compares them; what reads no protected datum has nothing to
compare."""

TRANSFORMS = {
    "CollaborateAgents": "beam", "ReleaseMeans": "beam", "SnapshotReleases": "beam", "EstimateAgents": "beam",
    "CollaboratePairwise": "beam", "RunRounds": "beam", "ReportRounds": "beam", "AnswerReports": "beam",
    "SummarizeUsers": "a part", "JoinUsers": "a part", "UsersTogether": "a part", "RunStages": "a part",
    "CarryRounds": "a part", "JoinSessions": "a part", "SingleEvents": "a part",
    "ReportLines": "a part", "TickShards": "a part", "CarryNotes": "a part", "TicksOf": "a part",
    "EventRows": "a part",
    "ForGood": "a part", "AnswerRoundsSource": "a source", "AnswerAgentsSource": "a source",
    "ReadKafka": "a source", "ReadPubSub": "a source", "ParseMessages": "a source", "SampleRows": "a source",
    "ReadTopic": "a source", "WriteEvents": "a sink", "WriteKafka": "a sink", "WritePubSub": "a sink",
}  # fmt: skip
"""Beam's transforms; parts, sources and sinks are run within the others."""

LIBRARY = {
    "private_means": "frames",
    "private_windows": "frames by window",
    "CollaborativeMean": "river",
    "AgentMean": "river",
    "PrivateMean": "one stream of river",
    "Agents": "agents",
    "FederatedSite": "federated sites",
    "SiteRelease": "federated sites",
    "better_mean": "answers of federated sites",
    "SiteEstimate": "answers of federated sites",
}
"""What takes data without a command, and the row of `PROOFS` that compares it."""

LIBRARY_WITHOUT_DATA = {
    "AgentsSettings", "SiteSettings", "KeyedNoise", "environment_noise", "ESTIMATORS", "build_estimator",
    "LearnedPrior", "read_site_releases", "plan_means", "forecast_agents", "simulate_agents", "simulate_rounds",
    "__version__",
}  # fmt: skip
"""What is made of settings, keys, public releases or made-up data."""


class Proof(NamedTuple):
    """What differs in two worlds whose bytes are equal, and the test that compares them."""

    differs: str
    test: str


_LATER = "values that no release has shown"
PROOFS = {
    "agents": Proof(
        f"{_LATER}; all values of an agent under equal releases",
        "test_watched_agents.py::test_unreleased_values_change_no_byte_of_anybody_else",
    ),
    "agents with covariates": Proof(
        "the same; attributes are public",
        "test_watched_covariates.py::test_unreleased_values_change_no_effect_and_no_answer",
    ),
    "agents that query each other": Proof(
        _LATER,
        "test_watched_agents.py::"
        "test_unreleased_values_of_agents_that_query_each_other_change_no_byte",
    ),
    "the same on Beam": Proof(
        _LATER, "test_watched_sites.py::test_neither_do_agents_who_ask_each_other"
    ),
    "two organizations": Proof(
        _LATER,
        "test_watched_sites.py::test_an_organization_learns_nothing_of_anothers_unreleased_values",
    ),
    "agents on Beam": Proof(
        _LATER, "test_watched_sites.py::test_a_pipeline_shows_nothing_of_unreleased_values"
    ),
    "topics": Proof(
        _LATER,
        "test_watched_kafka.py::test_unreleased_values_of_an_agent_change_no_record_of_others",
    ),
    "rounds": Proof(
        "all that a user holds, under equal reports",
        "test_watched_rounds.py::"
        "test_what_a_user_sends_changes_no_byte_under_reports_that_are_the_same",
    ),
    "rounds with a public forecast": Proof(
        "the same; a forecast from records is the known-bad twin",
        "test_watched_rounds.py::"
        "test_neither_do_they_with_a_public_forecast_but_they_do_with_one_of_the_records",
    ),
    "rounds on two sides": Proof(
        "the same", "test_watched_rounds.py::test_neither_do_they_between_the_two_sides"
    ),
    "rounds on Beam": Proof("the same", "test_watched_rounds.py::test_neither_do_they_on_beam"),
    "frames": Proof(
        "every value, under equal releases; with covariates, persons, shares and a store",
        "test_watched_library.py::test_no_value_of_a_frame_is_in_its_means_but_by_releases",
    ),
    "frames by window": Proof(
        "a user's value, under equal reports",
        "test_watched_library.py::test_nothing_that_a_user_has_is_in_the_windows_but_by_reports",
    ),
    "river": Proof(
        "every value, under equal releases",
        "test_watched_library.py::test_no_value_of_river_is_in_its_predictions_but_by_releases",
    ),
    "one stream of river": Proof(
        _LATER,
        "test_watched_library.py::test_no_later_value_of_a_stream_is_in_its_mean",
    ),
    "federated sites": Proof(
        "the records of a round that was released",
        "test_watched_library.py::test_a_site_that_is_asked_again_shows_nothing_of_its_records",
    ),
    "answers of federated sites": Proof(
        "the records of another site, under equal releases",
        "test_watched_library.py::test_no_record_of_a_site_is_in_the_answer_of_another",
    ),
}
"""Surfaces, as docs/privacy.md lists them: tables, notes, pages, predictions, releases, files, logs
and figures. `test_surfaces.py` compares both lists, and looks the tests up."""

PUBLIC_METRICS = {
    "Metrics": {
        "estimates", "events", "letters_unwritten", "refusals", "releases", "agents", "agents_exhausted", "drifts",
        "drift_warnings",
        "budget_spent_ratio_max", "released_class_size_median", "released_half_width_median", "input_lag_events",
        "group_commit_age_seconds",
        "prior_components",
        "prior_spread", "prior_count_ratio", "dependence_ratio", "covariates_explained_ratio", "budget_spent_ratio",
        "released_class_size",
        "released_half_width",
        "budget_left_seconds",
        "batch_seconds", "commit_seconds", "checkpoint_age_seconds", "ledger_bytes", "ledger_rows", "ready",
        "watermark_lag_seconds", "kafka_connected", "samples_pending", "first_release_timestamp_seconds",
        "accepted", "allowed_lateness_seconds", "delivery_seconds", "events_per_second",
        "input_silent_seconds", "partition_lag_events",
        "start_timestamp_seconds",
        "answer_lag_seconds", "refresh_seconds",
    },
    "RoundsMetrics": {
        "kafka_connected",
        "rounds", "rounds_over_budget", "rounds_reports", "rounds_results_refused", "agents", "agents_exhausted",
        "budget_spent_ratio_max", "rounds_half_width", "rounds_lower", "rounds_stages", "rounds_upper", "rounds_value",
        "rounds_waiting", "rounds_window_end_timestamp_seconds", "rounds_window_users", "budget_spent_ratio",
        "ledger_rows", "ready", "allowed_lateness_seconds", "rounds_answer_age_seconds", "rounds_period_seconds",
        "start_timestamp_seconds", "rounds_carried_windows", "rounds_carried_half_width", "rounds_carried_gain",
    },
    "CollaborationMetrics": {
        "events", "received_releases", "estimates", "refreshes", "agents", "releasing_agents",
        "released_half_width", "released_half_width_median", "released_class_size", "released_class_size_median",
        "prior_components", "prior_spread", "prior_count_ratio", "answer_lag_seconds", "ready", "events_per_second",
        "dependence_ratio", "covariates_explained_ratio", "input_silent_seconds",
        "start_timestamp_seconds", "kafka_connected",
    },
    "StatisticianMetrics": {
        "rounds", "statistician_reports", "statistician_stages", "rounds_waiting", "rounds_half_width", "rounds_lower",
        "rounds_stages", "rounds_upper", "rounds_value", "rounds_window_end_timestamp_seconds", "rounds_window_users",
        "rounds_period_seconds", "rounds_answer_age_seconds", "allowed_lateness_seconds", "ready", "kafka_connected",
        "start_timestamp_seconds",
    },
    "Beam": {
        "drifts", "drift_warnings",
        "accepted", "agents", "estimates", "events", "exhausted", "over_budget", "refusals", "rejected_", "releases",
        "results_refused", "rounds", "rounds_reports_", "samples", "sent", "batch_samples", "batch_milliseconds",
        "release_lag_milliseconds", "rounds_window_users", "answer_lag_milliseconds", "windows_overtaken",
        "reading_turns",
    },
}  # fmt: skip
"""What Prometheus sees at the address for everybody, and what Beam counts: compared in the worlds
with their page."""

_OF_THE_MACHINE = {
    "process_virtual_memory_bytes", "process_resident_memory_bytes", "process_start_time_seconds",
    "process_cpu_seconds", "process_open_fds", "process_max_fds", "store_bytes", "store_free_bytes", "store_disk_bytes",
}  # fmt: skip

PRIVATE_METRICS = {
    "classes", "class_agents_largest", "class_agents_median", "messages",
    "clipped", "estimate_class_size_median", "estimate_half_width_alone_median", "estimate_half_width_median",
    *_OF_THE_MACHINE,
}  # fmt: skip
"""What the operator of agents sees at an address of its own."""

PRIVATE_COLLABORATION_METRICS = PRIVATE_METRICS - {"clipped", "messages"}
"""What the operator of `run collaborate` sees at an address of its own."""

PRIVATE_ROUNDS_METRICS = {
    *_OF_THE_MACHINE, "allowed_lateness_seconds", "delivery_seconds", "events_per_second",
    "input_silent_seconds", "partition_lag_events",
    "accepted", "clipped", "events", "letters_unwritten", "refusals", "input_lag_events", "rounds_open_windows",
    "group_commit_age_seconds",
    "users_seen", "batch_seconds", "commit_seconds", "checkpoint_age_seconds", "ledger_bytes", "watermark_lag_seconds",
}  # fmt: skip
"""What the operator of rounds sees at an address of its own."""

METRICS_PATHS = ("/metrics", "/healthz", "/readyz")
PAGE_ROUTES = ("/", "/page.css", "/page.js", "/charts.js", "/plotly.js", "/data", "/agent")
PRIVATE_FIGURES = {"convergence", "judgement"}
"""Parts of the page's data that are of personal estimates: the page of agents is the operator's and
says so. What is said of a run is its gain, the ratio of two figures of the convergence, in words,
and the counts of rejected records, which are compared as `rejects`."""
