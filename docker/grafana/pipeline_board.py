"""Is the stream healthy: does the engine run, keep up, commit, and use what it reads."""

from panels import GREEN, RED, YELLOW, Board, Panel, Query, Row, over_shards

HERE = '{instance=~"$instance", trust!="private"}'
NO_ENGINE = "no engine"
_UP_DOWN = (("0", "no", RED), ("1", "yes", GREEN))


def _quantile(q: float, name: str) -> str:
    buckets = f"rate(meanstream_{name}_seconds_bucket{HERE}[$__rate_interval])"
    return f"histogram_quantile({q}, {over_shards(buckets)})"


BOARD = Board(
    name="pipeline",
    title="pipeline health",
    description="One engine is one instance. /readyz of an engine says in words why it is not ready.",
    rows=[
        Row(
            title="Now",
            panels=[
                Panel(
                    title="Answers",
                    description="Whether Prometheus can scrape the engine.",
                    queries=[Query('up{job="meanstream", instance=~"$instance"}')],
                    unit="bool_yes_no",
                    empty=NO_ENGINE,
                    kind="stat",
                    steps=((None, RED), (1, GREEN)),
                    mappings=_UP_DOWN,
                    width=4,
                    height=5,
                ),
                Panel(
                    title="Ready",
                    description="State is restored, connections stand and no delivery is stuck, of all shards.",
                    queries=[Query(over_shards(f"meanstream_ready{HERE}", "min"))],
                    unit="bool_yes_no",
                    empty=NO_ENGINE,
                    kind="stat",
                    steps=((None, RED), (1, GREEN)),
                    mappings=_UP_DOWN,
                    width=4,
                    height=5,
                ),
                Panel(
                    title="Alerts firing",
                    description="All of Meanstream's alerts, over all engines.",
                    queries=[
                        Query(
                            'count(ALERTS{alertstate="firing", alertname=~"Meanstream.+"}) or vector(0)',
                            "alerts",
                        )
                    ],
                    unit="short",
                    empty="no rules",
                    kind="stat",
                    decimals=0,
                    steps=((None, GREEN), (1, RED)),
                    width=4,
                    height=5,
                ),
                Panel(
                    title="Behind",
                    description="Records that the source holds and the engine has not read.",
                    queries=[Query(over_shards(f"meanstream_input_lag_events{HERE}"))],
                    unit="short",
                    empty="source cannot tell",
                    kind="stat",
                    decimals=0,
                    steps=((None, GREEN), (1000, YELLOW), (10000, RED)),
                    width=4,
                    height=5,
                ),
                Panel(
                    title="Checkpoint",
                    description="Seconds since all that had been read was in the store and delivered.",
                    queries=[Query(over_shards(f"meanstream_checkpoint_age_seconds{HERE}", "max"))],
                    unit="s",
                    empty="not started",
                    kind="stat",
                    steps=((None, GREEN), (60, YELLOW), (300, RED)),
                    width=4,
                    height=5,
                ),
                Panel(
                    title="Version",
                    description="Of Meanstream and of Python, on each engine.",
                    queries=[Query(f"meanstream_build_info{HERE}")],
                    unit="short",
                    empty=NO_ENGINE,
                    kind="table",
                    width=4,
                    height=5,
                ),
            ],
        ),
        Row(
            title="Throughput and lag",
            panels=[
                Panel(
                    title="Events per second",
                    description="Records read, good and bad.",
                    queries=[
                        Query(over_shards(f"rate(meanstream_events_total{HERE}[$__rate_interval])"))
                    ],
                    unit="ops",
                    empty=NO_ENGINE,
                    width=6,
                ),
                Panel(
                    title="Input lag",
                    description="Records that wait in the source. Rising: the engine is slower than its input.",
                    queries=[Query(over_shards(f"meanstream_input_lag_events{HERE}"))],
                    unit="short",
                    empty="source cannot tell",
                    steps=((None, GREEN), (10000, RED)),
                    width=6,
                ),
                Panel(
                    title="Lag by partition",
                    description="Records of each partition that wait. One above the others holds event time back.",
                    queries=[
                        Query(
                            f"meanstream_partition_lag_events{HERE}",
                            "{{topic}} {{partition}}, {{instance}}",
                        ),
                    ],
                    unit="short",
                    empty="no topic",
                    width=6,
                ),
                Panel(
                    title="Lag of event time",
                    description=(
                        "The clock minus the event time that all later samples are expected to be after. Never below "
                        "the allowed lateness; large and steady in a replay of old data."
                    ),
                    queries=[Query(over_shards(f"meanstream_watermark_lag_seconds{HERE}", "max"))],
                    unit="s",
                    empty="no event yet",
                    least=None,
                    width=6,
                ),
            ],
        ),
        Row(
            title="Connections and waiting",
            panels=[
                Panel(
                    title="Kafka answers",
                    description="By the option that names the topic. /readyz says why a client is not connected.",
                    queries=[
                        Query(
                            over_shards(f"meanstream_kafka_connected{HERE}", "min"),
                            "{{client}}, {{instance}}",
                        )
                    ],
                    unit="bool_yes_no",
                    empty="no topic",
                    steps=((None, RED), (1, GREEN)),
                    most=1,
                    width=12,
                ),
                Panel(
                    title="Samples that wait",
                    description="Taken, and not yet passed by event time, which stays behind by the allowed lateness.",
                    queries=[Query(over_shards(f"meanstream_samples_pending{HERE}"))],
                    unit="short",
                    empty="no engine of agents",
                    width=12,
                ),
            ],
        ),
        Row(
            title="What is not used",
            panels=[
                Panel(
                    title="Rejects by reason",
                    description="Records per second that were not used; `meanstream dlq list` shows them.",
                    queries=[
                        Query(
                            f"sum by (reason) (rate(meanstream_rejects_total{HERE}[$__rate_interval]))",
                            "{{reason}}",
                        )
                    ],
                    unit="ops",
                    empty=NO_ENGINE,
                    stacked=True,
                    width=12,
                ),
                Panel(
                    title="Rejected share",
                    description="Of the input, duplicates not counted. From 5 % on MeanstreamDeadLetters fires.",
                    queries=[Query(f"instance:meanstream_dead_letters:ratio_rate5m{HERE}")],
                    unit="percentunit",
                    empty="no event for 5 minutes",
                    steps=((None, GREEN), (0.05, RED)),
                    width=12,
                ),
            ],
        ),
        Row(
            title="Turns",
            panels=[
                Panel(
                    title="Commit",
                    description="Duration of a transaction: position, state, ledger and outgoing events.",
                    queries=[
                        Query(
                            _quantile(q, "commit"),
                            f"{text}, {{{{instance}}}}",
                        )
                        for q, text in ((0.99, "99 % of commits below"), (0.5, "median"))
                    ],
                    unit="s",
                    empty="no commit",
                    width=6,
                ),
                Panel(
                    title="Delivery",
                    description="From a commit until all that it lets out is durable in the sinks, retries included.",
                    queries=[
                        Query(
                            _quantile(q, "delivery"),
                            f"{text}, {{{{instance}}}}",
                        )
                        for q, text in ((0.99, "99 % of deliveries below"), (0.5, "median"))
                    ],
                    unit="s",
                    empty="no delivery",
                    width=6,
                ),
                Panel(
                    title="Turn",
                    description="Duration from reading a batch to its delivery: the delay that the engine adds.",
                    queries=[
                        Query(
                            _quantile(q, "batch"),
                            f"{text}, {{{{instance}}}}",
                        )
                        for q, text in ((0.99, "99 % of turns below"), (0.5, "median"))
                    ],
                    unit="s",
                    empty="no turn",
                    width=6,
                ),
                Panel(
                    title="Estimates per second",
                    description="Personal estimates written. In steps: they are made at each refresh.",
                    queries=[
                        Query(
                            over_shards(f"rate(meanstream_estimates_total{HERE}[$__rate_interval])")
                        )
                    ],
                    unit="ops",
                    empty=NO_ENGINE,
                    width=6,
                ),
            ],
        ),
    ],
)
