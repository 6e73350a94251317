"""Do the agents' estimates converge, and what does collaboration bring."""

from panels import Board, Panel, Query, Row, over_shards

HERE = '{instance=~"$instance", trust!="private"}'
NOT_YET = "no estimates yet"

_CHANGES = over_shards(f"increase(meanstream_drifts_total{HERE}[1h])")
_EVENTS = over_shards(f"meanstream_events_total{HERE}")
_AGENTS = over_shards(f"meanstream_agents{HERE}")

# Agents are spread over shards by a hash, so that the medians of shards differ little.
_HALF_WIDTH = over_shards(f"meanstream_released_half_width_median{HERE}", "avg")
_CLASS_SIZE = over_shards(f"meanstream_released_class_size_median{HERE}", "avg")


def _quantile(q: float, name: str) -> str:
    return f"histogram_quantile({q}, {over_shards(f'meanstream_{name}_bucket{HERE}')})"


def _learned(name: str) -> str:
    # Shards learn the same of all agents, some a refresh later.
    return over_shards(f"meanstream_{name}{HERE}", "max")


BOARD = Board(
    name="convergence",
    title="convergence of agents",
    description=(
        "Half-widths of the intervals from releases alone: public, and a little wider than "
        "those of the personal estimates, which also know the agent's own samples."
    ),
    rows=[
        Row(
            title="Now",
            panels=[
                Panel(
                    title="Half-width by releases alone",
                    description="Half of the agents' intervals are at most so wide to each side. In the values' unit.",
                    queries=[Query(_HALF_WIDTH)],
                    unit="short",
                    empty=NOT_YET,
                    kind="stat",
                    width=6,
                    height=5,
                ),
                Panel(
                    title="Gain over one's own releases",
                    description=(
                        "Variance of an agent's mean from its own releases, divided by that from all releases, median "
                        "over agents. 1: the others' tell nothing. What an agent gains over its own samples, which "
                        "have no noise for itself, is in the estimates, on the page and in --private-metrics."
                    ),
                    queries=[Query(_CLASS_SIZE)],
                    unit="suffix: times",
                    empty=NOT_YET,
                    kind="stat",
                    width=6,
                    height=5,
                ),
                Panel(
                    title="Agents",
                    description="Agents with at least one good sample.",
                    queries=[Query(_AGENTS)],
                    unit="short",
                    empty="no sample yet",
                    kind="stat",
                    decimals=0,
                    width=6,
                    height=5,
                ),
                Panel(
                    title="Classes of agents",
                    description="Components of the learned prior: groups of similar agents. 0: none is learned.",
                    queries=[Query(_learned("prior_components"))],
                    unit="short",
                    empty=NOT_YET,
                    kind="stat",
                    decimals=0,
                    width=6,
                    height=5,
                ),
            ],
        ),
        Row(
            title="Convergence",
            panels=[
                Panel(
                    title="Half-width of the intervals",
                    description=(
                        "Quantiles over the agents; every line should fall. The highest are agents with few samples."
                    ),
                    queries=[
                        Query(
                            _quantile(0.9, "released_half_width"),
                            "90 % of agents below, {{instance}}",
                        ),
                        Query(_HALF_WIDTH, "median, {{instance}}"),
                        Query(
                            _quantile(0.1, "released_half_width"),
                            "10 % of agents below, {{instance}}",
                        ),
                    ],
                    unit="short",
                    empty=NOT_YET,
                    logarithmic=True,
                    width=12,
                    height=9,
                ),
                Panel(
                    title="Own releases and all releases",
                    description=(
                        "Median half-width with the others' releases, and what it would be without them: the median "
                        "times the square root of the median gain (exact where all agents gain alike)."
                    ),
                    queries=[
                        Query(f"{_HALF_WIDTH} * sqrt({_CLASS_SIZE})", "own releases, {{instance}}"),
                        Query(_HALF_WIDTH, "all releases, {{instance}}"),
                    ],
                    unit="short",
                    empty=NOT_YET,
                    logarithmic=True,
                    width=12,
                    height=9,
                ),
                Panel(
                    title="Half-width, times the root of events per agent",
                    description=(
                        "Flat: intervals shrink as fast as more samples allow. Rising: they do not, because budgets "
                        "are spent, releases are rare, or agents within a class differ."
                    ),
                    queries=[
                        Query(
                            f"{_HALF_WIDTH} * sqrt({_EVENTS} / {_AGENTS})",
                        )
                    ],
                    unit="short",
                    empty=NOT_YET,
                    width=12,
                ),
                Panel(
                    title="Agents by half-width",
                    description="How many agents have an interval of which half-width, over time.",
                    queries=[
                        Query(
                            f"sum by (le) (meanstream_released_half_width_bucket{HERE})",
                            "{{le}}",
                            buckets=True,
                        )
                    ],
                    unit="short",
                    empty=NOT_YET,
                    kind="heatmap",
                    width=12,
                ),
            ],
        ),
        Row(
            title="What is learned of the population",
            panels=[
                Panel(
                    title="Gain over one's own releases",
                    description="Quantiles over the agents of the gain; an agent unlike all others stays at 1.",
                    queries=[
                        Query(
                            _quantile(0.9, "released_class_size"),
                            "90 % of agents below, {{instance}}",
                        ),
                        Query(_CLASS_SIZE, "median, {{instance}}"),
                        Query(
                            _quantile(0.1, "released_class_size"),
                            "10 % of agents below, {{instance}}",
                        ),
                    ],
                    unit="suffix: times",
                    empty=NOT_YET,
                    width=6,
                ),
                Panel(
                    title="Classes of agents",
                    description="Components of the learned prior. Settles with enough data to tell them apart.",
                    queries=[Query(_learned("prior_components"))],
                    unit="short",
                    empty=NOT_YET,
                    decimals=0,
                    width=6,
                ),
                Panel(
                    title="Spread within a class",
                    description=(
                        "Standard deviation of the agents' means within a class, in the values' unit. 0: all are alike."
                    ),
                    queries=[Query(_learned("prior_spread"))],
                    unit="short",
                    empty="no prior is learned",
                    width=6,
                ),
                Panel(
                    title="Means go with counts",
                    description=(
                        "Probability that means, or how they differ, go with the agents' numbers of samples. "
                        "Near 1, an agent is compared with those of its own count; the live page draws the curve."
                    ),
                    queries=[Query(_learned("prior_count_ratio"))],
                    unit="percentunit",
                    empty="no prior is learned",
                    width=6,
                ),
            ],
        ),
        Row(
            title="Samples that depend on each other",
            panels=[
                Panel(
                    title="Long-run variance over that of neighboring samples",
                    description=(
                        "1 for independent samples. Above 1, a mean of many samples varies more than neighboring "
                        "samples suggest. It stays 1 until dependence is 90 % probable; intervals allow for it."
                    ),
                    queries=[Query(_learned("dependence_ratio"))],
                    unit="short",
                    empty=NOT_YET,
                    decimals=1,
                    width=24,
                ),
            ],
        ),
        Row(
            title="What covariates explain",
            panels=[
                Panel(
                    title="Share of the variance of means that covariates explain",
                    description=(
                        "0: the declared attributes of agents say nothing about their means. 1: they say all. The "
                        "effects are learned from public releases; the page and reports name them by attribute."
                    ),
                    queries=[Query(_learned("covariates_explained_ratio"))],
                    unit="percentunit",
                    empty="no covariates are declared",
                    width=24,
                ),
            ],
        ),
        Row(
            title="Means that move",
            panels=[
                Panel(
                    title="Changes of means in the last hour",
                    description=(
                        "How often releases showed that their agent's mean has changed, and, before it was sure, that "
                        "it may have. With --memory only; one in 10,000 releases of a mean that stays is a false one."
                    ),
                    queries=[
                        Query(_CHANGES, "changed, {{instance}}"),
                        Query(
                            over_shards(f"increase(meanstream_drift_warnings_total{HERE}[1h])"),
                            "warnings, {{instance}}",
                        ),
                    ],
                    unit="short",
                    empty="no engine",
                    width=12,
                ),
                Panel(
                    title="Changes in the last hour to agents",
                    description="A few agents moved, or all did. From 10 % on MeanstreamAgentsMoved fires.",
                    queries=[
                        Query(
                            f"{_CHANGES} / {_AGENTS}",
                            "{{instance}}",
                        )
                    ],
                    unit="percentunit",
                    empty="no sample yet",
                    width=12,
                ),
            ],
        ),
    ],
)
