"""What the rounds said, window by window, and who takes part."""

from panels import BLUE, GREEN, RED, YELLOW, Board, Panel, Query, Row

HERE = '{instance=~"$instance", trust!="private"}'
NO_WINDOW = "no window answered yet"
NO_ENGINE = "no engine of rounds"
NOT_CARRIED = "nothing is carried"

BOARD = Board(
    name="rounds",
    title="rounds",
    description=(
        "A population's private mean per window. Of several windows answered within one scrape the newest is shown; "
        "all of them are in the sink of the means."
    ),
    rows=[
        Row(
            title="Newest window",
            panels=[
                Panel(
                    title="Mean",
                    description="The population's mean in the newest window that was answered. In the values' unit.",
                    queries=[Query(f"meanstream_rounds_value{HERE}")],
                    unit="short",
                    empty=NO_WINDOW,
                    kind="stat",
                    least=None,
                    width=6,
                    height=5,
                ),
                Panel(
                    title="Half-width",
                    description="Half the length of its interval.",
                    queries=[Query(f"meanstream_rounds_half_width{HERE}")],
                    unit="short",
                    empty=NO_WINDOW,
                    kind="stat",
                    width=6,
                    height=5,
                ),
                Panel(
                    title="Users in it",
                    description="Users whose reports were counted.",
                    queries=[Query(f"meanstream_rounds_window_users{HERE}")],
                    unit="short",
                    empty=NO_WINDOW,
                    kind="stat",
                    decimals=0,
                    width=6,
                    height=5,
                ),
                Panel(
                    title="Its end was",
                    description="Time since the window ended; it grows until the next one is answered.",
                    queries=[
                        Query(f"time() - meanstream_rounds_window_end_timestamp_seconds{HERE}")
                    ],
                    unit="s",
                    empty=NO_WINDOW,
                    kind="stat",
                    width=6,
                    height=5,
                ),
            ],
        ),
        Row(
            title="Answers",
            panels=[
                Panel(
                    title="Mean and interval",
                    description="The mean of each window as it was answered, between the ends of its interval.",
                    queries=[
                        Query(f"meanstream_rounds_upper{HERE}", "upper end, {{instance}}"),
                        Query(f"meanstream_rounds_value{HERE}", "mean, {{instance}}"),
                        Query(f"meanstream_rounds_lower{HERE}", "lower end, {{instance}}"),
                    ],
                    unit="short",
                    empty=NO_WINDOW,
                    least=None,
                    width=12,
                    height=9,
                ),
                Panel(
                    title="Half-width, times the root of users",
                    description=(
                        "Flat: intervals are as wide as the number of users makes them. A jump: the estimator changed "
                        "its design, or users now differ more."
                    ),
                    queries=[
                        Query(
                            f"meanstream_rounds_half_width{HERE} * sqrt(meanstream_rounds_window_users{HERE})"
                        ),
                    ],
                    unit="short",
                    empty=NO_WINDOW,
                    width=12,
                    height=9,
                ),
            ],
        ),
        Row(
            title="Rounds",
            panels=[
                Panel(
                    title="Windows answered",
                    description="Rounds that came to their end, per hour.",
                    queries=[
                        Query(f"3600 * rate(meanstream_rounds_total{HERE}[$__rate_interval])")
                    ],
                    unit="suffix: per hour",
                    empty=NO_ENGINE,
                ),
                Panel(
                    title="Waiting rounds",
                    description="Rounds that wait for the other side's result of a stage.",
                    queries=[Query(f"meanstream_rounds_waiting{HERE}")],
                    unit="short",
                    empty=NO_ENGINE,
                    decimals=0,
                ),
                Panel(
                    title="Stages",
                    description="Stages of the newest round: each user is asked in one of them.",
                    queries=[Query(f"meanstream_rounds_stages{HERE}")],
                    unit="short",
                    empty=NO_WINDOW,
                    decimals=0,
                ),
            ],
        ),
        Row(
            title="Carried from window to window",
            panels=[
                Panel(
                    title="Windows carried",
                    description=(
                        "Of the estimator repeating: how many windows what the next one is given was learned from. "
                        "Back at 1: reports on the bounds contradicted it, and it restarted."
                    ),
                    queries=[Query(f"meanstream_rounds_carried_windows{HERE}")],
                    unit="short",
                    empty=NOT_CARRIED,
                    decimals=0,
                ),
                Panel(
                    title="Half-width of the narrow window",
                    description=(
                        "Around the last mean: where the next round asks. In the values' unit; none until the spread "
                        "of users' means is known, and where it is too wide to pay."
                    ),
                    queries=[Query(f"meanstream_rounds_carried_half_width{HERE}")],
                    unit="short",
                    empty="no narrow window",
                ),
                Panel(
                    title="Gain of what is carried",
                    description=(
                        "How many times as large the mean's standard error would be with nothing carried and every "
                        "user reporting on the bounds; below 1 while the spread is learned. Intervals gain less: they "
                        "hold for groups far out, too, unless tails are declared."
                    ),
                    queries=[Query(f"meanstream_rounds_carried_gain{HERE}")],
                    unit="suffix: times",
                    empty=NOT_CARRIED,
                ),
            ],
        ),
        Row(
            title="Users and their budgets",
            panels=[
                Panel(
                    title="Reports per second",
                    description="Charged in the ledger before they leave, one per user and round.",
                    queries=[
                        Query(f"rate(meanstream_rounds_reports_total{HERE}[$__rate_interval])")
                    ],
                    unit="ops",
                    empty=NO_ENGINE,
                    width=6,
                ),
                Panel(
                    title="Users",
                    description="Users with at least one good sample, and those in the newest window.",
                    queries=[
                        Query(
                            f"meanstream_agents{HERE} and on (instance) meanstream_rounds_total",
                            "known, {{instance}}",
                        ),
                        Query(
                            f"meanstream_rounds_window_users{HERE}",
                            "in the newest window, {{instance}}",
                        ),
                    ],
                    unit="short",
                    empty=NO_ENGINE,
                    decimals=0,
                    width=6,
                ),
                Panel(
                    title="Worst user",
                    description="Share of its rounds that the user who spent most has spent.",
                    queries=[
                        Query(
                            f"meanstream_budget_spent_ratio_max{HERE} and on (instance) meanstream_rounds_total"
                        ),
                    ],
                    unit="percentunit",
                    empty="no budget is set",
                    steps=((None, GREEN), (0.75, YELLOW), (0.9, RED)),
                    most=1,
                    width=6,
                ),
                Panel(
                    title="Left out for their budget",
                    description=(
                        "How often per second a user's data did not enter a round, because its budget does not pay for "
                        "it: the mean is then of the others."
                    ),
                    queries=[
                        Query(f"rate(meanstream_rounds_over_budget_total{HERE}[$__rate_interval])")
                    ],
                    unit="ops",
                    empty=NO_ENGINE,
                    steps=((None, BLUE), (0.001, RED)),
                    width=6,
                ),
            ],
        ),
    ],
)
