"""Which options the engine alone has, and which come with a runner of Beam: declared once, for refusals and docs."""

from __future__ import annotations

_ENGINE = (
    *("follow", "max_future", "max_dead_letters", "dead_letters", "wait_for", "dry_run", "log_format"),
    *("metrics", "private_metrics", "private_figures", "page", "page_remote"),
)

ENGINE_ONLY: dict[str, tuple[str, ...]] = {
    "agents": (*_ENGINE, "refresh", "quorum", "idle_after", "answers", "answer_tokens", "answers_remote"),
    "rounds": (*_ENGINE, "reports", "stages", "notices", "reports_only", "from_reports"),
}
"""Options of `run KIND` that are refused with `--runner`; your own pipelines have some of them, such as `refresh`."""

RUNNER_ONLY = ("runner", "runner_arg", "offsets")
"""Options that come with `--runner` alone."""
