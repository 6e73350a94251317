"""Private: what only who runs an engine may see, from its `--private-metrics`.

Most of it of rounds.
"""

from panels import Board, Panel, Query, Row, over_shards

HERE = '{instance=~"$instance", trust="private"}'
EMPTY = "no private metrics"

BOARD = Board(
    name="operator",
    title="the operator's, private",
    description=(
        "Private: process and disk, and of rounds how many samples users send, and when, as --private-metrics shows "
        "it. For those who may see the samples themselves; keep it, and the Prometheus that scrapes it, from everyone "
        "else."
    ),
    rows=[
        Row(
            title="Process and disk",
            panels=[
                Panel(
                    title="Memory",
                    description="Resident memory of the process.",
                    queries=[Query(over_shards(f"process_resident_memory_bytes{HERE}"))],
                    unit="bytes",
                    empty=EMPTY,
                    width=6,
                ),
                Panel(
                    title="Processor",
                    description="Seconds of a processor per second; 1 is one core.",
                    queries=[
                        Query(
                            over_shards(f"rate(process_cpu_seconds_total{HERE}[$__rate_interval])")
                        )
                    ],
                    unit="short",
                    empty=EMPTY,
                    width=6,
                ),
                Panel(
                    title="Descriptors",
                    description="Files and connections that are open; from 80 % of the limit on an alert fires.",
                    queries=[
                        Query(over_shards(f"process_open_fds{HERE}", "max"), "open, {{instance}}"),
                        Query(over_shards(f"process_max_fds{HERE}", "min"), "limit, {{instance}}"),
                    ],
                    unit="short",
                    empty=EMPTY,
                    decimals=0,
                    logarithmic=True,
                    width=6,
                ),
                Panel(
                    title="Store and disk",
                    description="Bytes of the store with its log, and bytes that are left on its disk.",
                    queries=[
                        Query(over_shards(f"meanstream_store_bytes{HERE}"), "store, {{instance}}"),
                        Query(
                            over_shards(f"meanstream_store_free_bytes{HERE}", "min"),
                            "left, {{instance}}",
                        ),
                    ],
                    unit="bytes",
                    empty=EMPTY,
                    logarithmic=True,
                    width=6,
                ),
            ],
        ),
        Row(
            title="Classes of agents",
            panels=[
                Panel(
                    title="Classes",
                    description="Each agent counts for one over the size of its class, so that a class adds up to 1.",
                    queries=[Query(f"meanstream_classes{HERE}")],
                    unit="short",
                    empty=EMPTY,
                    decimals=1,
                ),
                Panel(
                    title="Agents in a class",
                    description="Median over agents of the number of agents in the class of each, and the largest.",
                    queries=[
                        Query(f"meanstream_class_agents_median{HERE}", "median, {{instance}}"),
                        Query(f"meanstream_class_agents_largest{HERE}", "largest, {{instance}}"),
                    ],
                    unit="short",
                    empty=EMPTY,
                    decimals=0,
                ),
                Panel(
                    title="Releases between agents",
                    description="With a pairwise schedule: releases from one agent to another.",
                    queries=[Query(f"rate(meanstream_messages_total{HERE}[$__rate_interval])")],
                    unit="cps",
                    empty=EMPTY,
                ),
            ],
        ),
        Row(
            title="Samples",
            panels=[
                Panel(
                    title="Records",
                    description="Records read, good and bad, and samples that were taken.",
                    queries=[
                        Query(
                            f"rate(meanstream_events_total{HERE}[$__rate_interval])",
                            "read, {{instance}}",
                        ),
                        Query(
                            f"rate(meanstream_accepted_total{HERE}[$__rate_interval])",
                            "taken, {{instance}}",
                        ),
                    ],
                    unit="cps",
                    empty=EMPTY,
                ),
                Panel(
                    title="Records that were not used",
                    description="By reason.",
                    queries=[
                        Query(
                            f"rate(meanstream_rejects_total{HERE}[$__rate_interval])",
                            "{{reason}}, {{instance}}",
                        )
                    ],
                    unit="cps",
                    empty=EMPTY,
                ),
                Panel(
                    title="Samples outside the bounds",
                    description="They counted as the nearest bound.",
                    queries=[Query(f"rate(meanstream_clipped_total{HERE}[$__rate_interval])")],
                    unit="cps",
                    empty=EMPTY,
                ),
            ],
        ),
        Row(
            title="Users and windows",
            panels=[
                Panel(
                    title="Users seen",
                    description="Users with at least one good sample.",
                    queries=[Query(f"meanstream_users_seen{HERE}")],
                    unit="short",
                    empty=EMPTY,
                    decimals=0,
                ),
                Panel(
                    title="Open windows",
                    description="Windows that still take samples.",
                    queries=[Query(f"meanstream_rounds_open_windows{HERE}")],
                    unit="short",
                    empty=EMPTY,
                    decimals=0,
                ),
                Panel(
                    title="Refusals",
                    description="Reports refused, because the same report was made before from another input.",
                    queries=[Query(f"meanstream_refusals_total{HERE}")],
                    unit="short",
                    empty=EMPTY,
                    decimals=0,
                ),
            ],
        ),
        Row(
            title="Progress",
            panels=[
                Panel(
                    title="Records not read yet",
                    description="What the source holds and the engine has not read.",
                    queries=[Query(f"meanstream_input_lag_events{HERE}")],
                    unit="short",
                    empty=EMPTY,
                    decimals=0,
                ),
                Panel(
                    title="Event time behind the clock",
                    description="The clock minus the event time that all later samples are expected to be after.",
                    queries=[Query(f"meanstream_watermark_lag_seconds{HERE}")],
                    unit="s",
                    empty=EMPTY,
                ),
                Panel(
                    title="Age of the checkpoint",
                    description="Time since all that had been read was in the store and delivered.",
                    queries=[Query(f"meanstream_checkpoint_age_seconds{HERE}")],
                    unit="s",
                    empty=EMPTY,
                ),
            ],
        ),
    ],
)
