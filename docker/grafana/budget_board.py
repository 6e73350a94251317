"""Does the privacy budget last."""

from panels import GREEN, RED, YELLOW, Board, Panel, Query, Row, over_shards
from prometheus_client.utils import floatToGoString

HERE = '{instance=~"$instance", trust!="private"}'
_WORST_OF_SHARD = f"meanstream_budget_spent_ratio_max{HERE}"
_WORST = over_shards(_WORST_OF_SHARD, "max")
_SPENT = over_shards(f"meanstream_budget_spent_ratio_bucket{HERE}")
_LEFT = over_shards(f"meanstream_budget_left_seconds_bucket{HERE}")
NO_AGENT = "no agent yet"
NO_LEDGER = "ledger not readable"
_TRAFFIC = ((None, GREEN), (0.75, YELLOW), (0.9, RED))
_FINE = ((None, GREEN), (1, RED))
_AHEAD = (
    (1, "a day"),
    (7, "a week"),
    (30, "30 days"),
    (90, "90 days"),
    (365, "a year"),
    (1825, "5 years"),
)
"""Buckets of the time that is left, in days: Grafana gives names of series no unit."""


def _until(days: float) -> str:
    """Choose a bucket."""
    return HERE.replace("{", f'{{le="{floatToGoString(86_400.0 * days)}", ', 1)


BOARD = Board(
    name="budget",
    title="privacy budget",
    description=(
        "What the agents have spent of their horizons. At its horizon an agent releases nothing any more, for good; "
        "`meanstream budget --store state.db` lists every agent."
    ),
    rows=[
        Row(
            title="Now",
            panels=[
                Panel(
                    title="Worst agent",
                    description="Share of its horizon that the agent which spent most has spent.",
                    queries=[Query(_WORST)],
                    unit="percentunit",
                    empty=NO_AGENT,
                    kind="stat",
                    steps=_TRAFFIC,
                    most=1,
                    width=6,
                    height=5,
                ),
                Panel(
                    title="Agents at their horizon",
                    description="Agents that have made their last release.",
                    queries=[Query(over_shards(f"meanstream_agents_exhausted{HERE}"))],
                    unit="short",
                    empty=NO_AGENT,
                    kind="stat",
                    decimals=0,
                    steps=((None, GREEN), (1, YELLOW)),
                    width=6,
                    height=5,
                ),
                Panel(
                    title="Refused releases",
                    description=(
                        "The same release was asked again from another input: a store was copied or its input changed. "
                        "Nothing was released twice. Must be 0."
                    ),
                    queries=[Query(over_shards(f"meanstream_refusals_total{HERE}"))],
                    unit="short",
                    empty="no engine",
                    kind="stat",
                    decimals=0,
                    steps=_FINE,
                    width=6,
                    height=5,
                ),
                Panel(
                    title="Releases",
                    description="Rows of the ledger: every release ever charged, over all runs on the store.",
                    queries=[Query(over_shards(f"meanstream_ledger_rows{HERE}"))],
                    unit="short",
                    empty=NO_LEDGER,
                    kind="stat",
                    decimals=0,
                    width=6,
                    height=5,
                ),
            ],
        ),
        Row(
            title="How long it lasts",
            panels=[
                Panel(
                    title="Spent share",
                    description="Of the horizon: the agent that spent most, and 90 % of the agents.",
                    queries=[
                        Query(_WORST, "worst agent, {{instance}}"),
                        Query(
                            f"histogram_quantile(0.9, {_SPENT})",
                            "90 % of agents below, {{instance}}",
                        ),
                    ],
                    unit="percentunit",
                    empty=NO_AGENT,
                    steps=_TRAFFIC,
                    most=1,
                    width=12,
                    height=9,
                ),
                Panel(
                    title="Worst agent in 24 hours, if it goes on so",
                    description=(
                        "The line through the last hour, a day on, at most 100 %. A schedule that grows geometrically "
                        "spends ever more slowly, so this is the pessimist's answer."
                    ),
                    queries=[
                        Query(
                            over_shards(
                                f"clamp(predict_linear({_WORST_OF_SHARD}[1h], 86400), 0, 1)", "max"
                            )
                        ),
                    ],
                    unit="percentunit",
                    empty=NO_AGENT,
                    steps=_TRAFFIC,
                    most=1,
                    width=12,
                    height=9,
                ),
                Panel(
                    title="Agents by spent share",
                    description="How many agents have spent at most which share of their horizon, now.",
                    queries=[
                        Query(
                            f"sum by (le) (meanstream_budget_spent_ratio_bucket{HERE})",
                            "at most {{le}}",
                        )
                    ],
                    unit="short",
                    empty=NO_AGENT,
                    kind="bargauge",
                    decimals=0,
                    width=12,
                ),
                Panel(
                    title="Agents by time to their last release",
                    description=(
                        "How many agents make the last release of their horizon so soon after the newest, "
                        "if each goes on as between its first and its newest; `meanstream budget` names them."
                    ),
                    queries=[
                        Query(
                            f"sum(meanstream_budget_left_seconds_bucket{_until(days)})",
                            f"within {text}",
                        )
                        for days, text in _AHEAD
                    ],
                    unit="short",
                    empty="no agent released twice yet",
                    kind="bargauge",
                    decimals=0,
                    width=12,
                ),
                Panel(
                    title="When budgets end",
                    description="Days, at the rate so far: a tenth, half and nine tenths of the agents.",
                    queries=[
                        Query(
                            f"histogram_quantile({share}, {_LEFT}) / 86400",
                            f"{text} of agents, {{{{instance}}}}",
                        )
                        for share, text in ((0.1, "10 %"), (0.5, "half"), (0.9, "90 %"))
                    ],
                    unit="d",
                    empty="no agent released twice yet",
                    width=12,
                ),
                Panel(
                    title="Agents with more than 90 % spent",
                    description="Share of the agents. The alert MeanstreamBudgetNearlySpent fires from 10 % on.",
                    queries=[
                        Query(f"instance:meanstream_budget_nearly_spent_agents:ratio{HERE}"),
                    ],
                    unit="percentunit",
                    empty=NO_AGENT,
                    steps=((None, GREEN), (0.1, RED)),
                    most=1,
                    width=12,
                ),
            ],
        ),
        Row(
            title="Releases and ledger",
            panels=[
                Panel(
                    title="Releases per second",
                    description="Charged in the ledger before they leave.",
                    queries=[
                        Query(
                            over_shards(f"rate(meanstream_releases_total{HERE}[$__rate_interval])")
                        )
                    ],
                    unit="ops",
                    empty="no engine",
                ),
                Panel(
                    title="Releases in the last hour",
                    description="0 for an hour while events arrive fires MeanstreamNoRelease.",
                    queries=[Query(f"instance:meanstream_releases:increase1h{HERE}")],
                    unit="short",
                    empty="no engine",
                ),
                Panel(
                    title="Size of the ledger",
                    description="Bytes of the outputs in the ledger, which is kept for ever.",
                    queries=[Query(over_shards(f"meanstream_ledger_bytes{HERE}"))],
                    unit="bytes",
                    empty=NO_LEDGER,
                ),
            ],
        ),
    ],
)
