"""Private: what only who runs the users' side of rounds may see, from its `--private-metrics`."""

from panels import Board, Panel, Query, Row

HERE = '{instance=~"$instance", trust="private"}'
EMPTY = "no private metrics"

BOARD = Board(
    name="operator",
    title="rounds, private",
    description=(
        "Private: how many samples users send, and when, as --private-metrics shows it. For those who may see the "
        "samples themselves; keep it, and the Prometheus that scrapes it, from everybody else."
    ),
    rows=[
        Row(
            title="Samples",
            panels=[
                Panel(
                    title="Records",
                    description="Records read, good and bad, and samples that were taken.",
                    queries=[
                        Query(f"rate(meanstream_events_total{HERE}[$__rate_interval])", "read, {{instance}}"),
                        Query(f"rate(meanstream_accepted_total{HERE}[$__rate_interval])", "taken, {{instance}}"),
                    ],
                    unit="cps",
                    empty=EMPTY,
                ),
                Panel(
                    title="Records that were not used",
                    description="By reason.",
                    queries=[
                        Query(f"rate(meanstream_rejects_total{HERE}[$__rate_interval])", "{{reason}}, {{instance}}")
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
