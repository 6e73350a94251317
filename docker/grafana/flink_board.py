"""Does the Beam pipeline on Flink keep up and checkpoint, and what does it do.

Names as Flink 1.19's Prometheus reporter gives them, and the engine's names for what pipelines
count.
"""

from panels import GREEN, RED, YELLOW, Board, Panel, Query, Row

HERE = '{instance=~"$instance"}'
NO_JOB = "no job runs"
NO_CLUSTER = "no cluster"
# Of all jobs: docker/prometheus/rules/flink.yml adds up the operators and subtasks of each, over
# all processes.
PIPELINE = '{job="flink"}'
JOB = "{{job_name}}"
NO_PIPELINE = "no pipeline"
# Before the first event a watermark is the smallest number there is, after the last one the
# largest.
_NOW = 'flink_taskmanager_job_task_operator_currentInputWatermark{instance=~"$instance"}'
_LAG = f"time() - ({_NOW} > 0 < 4e12) / 1000"

BOARD = Board(
    name="flink",
    title="Flink and Beam",
    description="A Beam pipeline on Flink: its job, its tasks and the two Java processes.",
    job="flink",
    rows=[
        Row(
            title="Now",
            panels=[
                Panel(
                    title="Running jobs",
                    description="As the job manager counts them.",
                    queries=[Query(f"flink_jobmanager_numRunningJobs{HERE}")],
                    unit="short",
                    empty=NO_CLUSTER,
                    kind="stat",
                    decimals=0,
                    width=6,
                    height=5,
                ),
                Panel(
                    title="Free task slots",
                    description="A job needs as many as its parallelism.",
                    queries=[Query(f"flink_jobmanager_taskSlotsAvailable{HERE}")],
                    unit="short",
                    empty=NO_CLUSTER,
                    kind="stat",
                    decimals=0,
                    width=6,
                    height=5,
                ),
                Panel(
                    title="Restarts",
                    description=(
                        "Of each job since it was submitted. After a restart elements are executed again; noise is "
                        "keyed, so nothing is released twice."
                    ),
                    queries=[Query(f"flink_jobmanager_job_numRestarts{HERE}", "{{job_name}}")],
                    unit="short",
                    empty=NO_JOB,
                    kind="stat",
                    decimals=0,
                    steps=((None, GREEN), (1, YELLOW), (10, RED)),
                    width=6,
                    height=5,
                ),
                Panel(
                    title="Uptime",
                    description="Since the last restart of each job.",
                    queries=[Query(f"flink_jobmanager_job_uptime{HERE}", "{{job_name}}")],
                    unit="ms",
                    empty=NO_JOB,
                    kind="stat",
                    width=6,
                    height=5,
                ),
            ],
        ),
        Row(
            title="Pipelines of Meanstream",
            panels=[
                Panel(
                    title="Events per second",
                    description="Records read, good and bad; samples, where another source has read them.",
                    queries=[
                        Query(f"rate(meanstream_events_total{PIPELINE}[$__rate_interval])", JOB)
                    ],
                    unit="ops",
                    empty=NO_PIPELINE,
                ),
                Panel(
                    title="Rejects by reason",
                    description="Per second, over all jobs: records, samples and reports that were not used.",
                    queries=[
                        Query(
                            f"sum by (reason) (rate(meanstream_rejects_total{PIPELINE}[$__rate_interval]))",
                            "{{reason}}",
                        )
                    ],
                    unit="ops",
                    empty="none rejected",
                    stacked=True,
                ),
                Panel(
                    title="Work of the shards",
                    description=(
                        "Seconds per second that shards of agents release, over all subtasks. Near the parallelism: "
                        "they are what limits the job."
                    ),
                    queries=[
                        Query(
                            f"rate(meanstream_batch_seconds_sum{PIPELINE}[$__rate_interval])", JOB
                        )
                    ],
                    unit="short",
                    empty="no agents",
                ),
                Panel(
                    title="Released and answered",
                    description="Releases and personal estimates per second; in steps, as windows end.",
                    queries=[
                        Query(
                            f"rate(meanstream_{name}_total{PIPELINE}[$__rate_interval])",
                            f"{name}, {JOB}",
                        )
                        for name in ("releases", "estimates")
                    ],
                    unit="ops",
                    empty="no agents",
                ),
                Panel(
                    title="Agents",
                    description="With a good sample, and those of them at their horizon; since the last restart.",
                    queries=[
                        Query(f"meanstream_agents{PIPELINE}", f"known, {JOB}"),
                        Query(f"meanstream_agents_exhausted{PIPELINE}", f"at their horizon, {JOB}"),
                    ],
                    unit="short",
                    empty="no agents",
                    decimals=0,
                ),
                Panel(
                    title="Refused releases",
                    description="The same was released before from other input. Above 0 MeanstreamRefusal fires.",
                    queries=[Query(f"meanstream_refusals_total{PIPELINE}", JOB)],
                    unit="short",
                    empty="no agents",
                    kind="stat",
                    decimals=0,
                    steps=((None, GREEN), (1, RED)),
                ),
            ],
        ),
        Row(
            title="Checkpoints",
            panels=[
                Panel(
                    title="Checkpoints",
                    description="After a crash, what was read since the last completed one is read again.",
                    queries=[
                        Query(
                            f"flink_jobmanager_job_numberOfCompletedCheckpoints{HERE}",
                            "completed, {{job_name}}",
                        ),
                        Query(
                            f"flink_jobmanager_job_numberOfFailedCheckpoints{HERE}",
                            "failed, {{job_name}}",
                        ),
                    ],
                    unit="short",
                    empty=NO_JOB,
                    decimals=0,
                ),
                Panel(
                    title="Duration of a checkpoint",
                    description="Of the last one. Near the interval between checkpoints the job does little else.",
                    queries=[
                        Query(f"flink_jobmanager_job_lastCheckpointDuration{HERE}", "{{job_name}}")
                    ],
                    unit="ms",
                    empty=NO_JOB,
                ),
                Panel(
                    title="Size of a checkpoint",
                    description="Of the last one: the users' state of all open windows, and the ledger's.",
                    queries=[
                        Query(f"flink_jobmanager_job_lastCheckpointSize{HERE}", "{{job_name}}")
                    ],
                    unit="bytes",
                    empty=NO_JOB,
                ),
            ],
        ),
        Row(
            title="Tasks",
            panels=[
                Panel(
                    title="Records in",
                    description="Per second and task. A task is a chain of Beam stages; one record may be a batch.",
                    queries=[
                        Query(
                            f"sum by (task_name) (flink_taskmanager_job_task_numRecordsInPerSecond{HERE})",
                            "{{task_name}}",
                        )
                    ],
                    unit="ops",
                    empty=NO_JOB,
                    width=12,
                ),
                Panel(
                    title="Lag of event time",
                    description=(
                        "The clock minus the input watermark, the slowest of each operator; windows close as it "
                        "passes. Operators whose input has not begun or has ended are not shown."
                    ),
                    queries=[Query(f"max by (operator_name) ({_LAG})", "{{operator_name}}")],
                    unit="s",
                    empty="no event time yet",
                    least=None,
                    width=12,
                ),
                Panel(
                    title="Busy",
                    description="Share of the time that a task works. Near 100 %: it is what limits the job.",
                    queries=[
                        Query(
                            f"max by (task_name) (flink_taskmanager_job_task_busyTimeMsPerSecond{HERE} >= 0) / 1000",
                            "{{task_name}}",
                        )
                    ],
                    unit="percentunit",
                    empty=NO_JOB,
                    most=1,
                    width=12,
                ),
                Panel(
                    title="Back pressure",
                    description="Share of the time that a task waits because the next one is slower.",
                    queries=[
                        Query(
                            "max by (task_name) "
                            f"(flink_taskmanager_job_task_backPressuredTimeMsPerSecond{HERE}) / 1000",
                            "{{task_name}}",
                        )
                    ],
                    unit="percentunit",
                    empty=NO_JOB,
                    most=1,
                    steps=((None, GREEN), (0.5, RED)),
                    width=12,
                ),
            ],
        ),
        Row(
            title="Processes",
            panels=[
                Panel(
                    title="Java heap",
                    description="Used share of each process's heap. State of type hashmap lies in it.",
                    queries=[
                        Query(
                            f"flink_{process}_Status_JVM_Memory_Heap_Used{HERE}"
                            f" / flink_{process}_Status_JVM_Memory_Heap_Max{HERE}",
                            f"{text}, {{{{instance}}}}",
                        )
                        for process, text in (
                            ("jobmanager", "job manager"),
                            ("taskmanager", "task manager"),
                        )
                    ],
                    unit="percentunit",
                    empty=NO_CLUSTER,
                    most=1,
                    steps=((None, GREEN), (0.9, RED)),
                    width=12,
                ),
                Panel(
                    title="Java processor load",
                    description="Share of the machine that each process uses; the Python workers are not in it.",
                    queries=[
                        Query(
                            f"flink_{process}_Status_JVM_CPU_Load{HERE}",
                            f"{text}, {{{{instance}}}}",
                        )
                        for process, text in (
                            ("jobmanager", "job manager"),
                            ("taskmanager", "task manager"),
                        )
                    ],
                    unit="percentunit",
                    empty=NO_CLUSTER,
                    most=1,
                    width=12,
                ),
            ],
        ),
    ],
)
