"""What the metrics of an engine of agents are called, and what they say, by kind."""

from __future__ import annotations

COUNTERS = {
    "events": "Records read, good and bad.",
    "accepted": "Samples that were taken.",
    "letters_unwritten": "Rejected records without a dead letter, beyond --max-dead-letters.",
    "releases": "Releases charged in the ledger.",
    "refusals": "Releases refused, because the same release was made before from another input.",
    "drifts": "Changes of an agent's mean that its releases show; with a memory only.",
    "drift_warnings": "Releases that show that their agent's mean may have changed, before it is sure.",
    "estimates": "Personal estimates written.",
}
GAUGES = {
    "agents": "Agents with at least one good sample.",
    "agents_exhausted": "Agents that have made the last release of their horizon.",
    "budget_spent_ratio_max": "Share of its horizon that the agent which spent most has spent.",
    "released_half_width_median": "Median over agents of meanstream_released_half_width.",
    "released_class_size_median": "Median over agents of meanstream_released_class_size.",
    "prior_components": "Components of the learned prior; 0 where no prior is learned.",
    "prior_spread": "Standard deviation of the means within a component of the learned prior, in the values' unit.",
    "prior_count_ratio": "Probability that means, or their spread, go with the agents' numbers of samples.",
    "dependence_ratio": "Long-run variance over that of neighboring samples; 1 until releases show dependence.",
    "covariates_explained_ratio": "Share of the variance of means that covariates explain; none without covariates.",
    "answer_lag_seconds": "The clock minus the event time that agents were answered up to, when they last were.",
    "samples_pending": "Samples that were taken and wait for event time.",
    "first_release_timestamp_seconds": "Event time at which the first release is due; none once there was one.",
    "input_lag_events": "Records that the source holds and the engine has not read.",
    "refresh_seconds": "How often agents get estimates, in event time; none where they do at the end of the source.",
    "allowed_lateness_seconds": "How far a sample may lie behind event time; releases wait for as long.",
}
DISTRIBUTIONS = {
    "budget_spent_ratio": "Agents by the share of their horizon that they have spent.",
    "released_half_width": "Agents by the half-width of the interval that the releases alone give, in values' units.",
    "released_class_size": "Agents by the gain in variance from all releases over their own releases.",
}
FORECASTS = {
    "budget_left_seconds": "Agents by time from the newest release to their last one, at each agent's rate so far.",
}
DURATIONS = {
    "commit_seconds": "Duration of a transaction: position, state, ledger and outgoing events.",
    "delivery_seconds": "Time from a commit until its events are durable in the sinks, with retries.",
    "batch_seconds": "Duration of a turn, from reading a batch to its delivery.",
}
LIVE = {
    "watermark_lag_seconds": "The clock minus the event time that all later samples are expected to be after.",
    "checkpoint_age_seconds": "Seconds since all that had been read was in the store and delivered.",
    "ready": "1 if state is restored, connections stand and no delivery is stuck, as /readyz says.",
    "ledger_rows": "Rows of the ledger.",
    "ledger_bytes": "Bytes of the outputs in the ledger.",
    "events_per_second": "Records read per second, over the last minute.",
    "input_silent_seconds": "Seconds since the last record was read, or since the start.",
    "start_timestamp_seconds": "When this process began to be watched.",
}
DISK = {
    "store_bytes": "Bytes of the store's file and its write-ahead log.",
    "store_free_bytes": "Bytes that are left on the disk of the store.",
    "store_disk_bytes": "Bytes of the disk of the store.",
}
PROCESS = (
    "process_virtual_memory_bytes",
    "process_resident_memory_bytes",
    "process_start_time_seconds",
    "process_cpu_seconds",
    "process_open_fds",
    "process_max_fds",
)
"""What the Prometheus client tells of a process, under the names that it has everywhere."""

PARTITION_LAG = "Records of a partition that the source holds and the engine has not read."

CONNECTED = "1 if a broker answers the client of the option that `client` names, 0 if none does."
