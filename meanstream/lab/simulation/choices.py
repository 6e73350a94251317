"""What can be chosen in a simulation, and what each mode chooses by default."""

from __future__ import annotations

MODE_DEFAULTS: dict[str, dict[str, str]] = {
    "paper": {
        "counter": "pm1",
        "weights": "last",
        "schedule": "round_robin",
        "collaboration": "tests",
        "test": "lazy",
        "variance": "known",
        "noise": "gaussian",
        "calibration": "classical",
    },
    "tuned": {
        "counter": "toeplitz",
        "weights": "gls",
        "schedule": "broadcast",
        "collaboration": "learned_prior",
        "test": "lazy",
        "variance": "known",
        "noise": "gaussian",
        "calibration": "analytic",
    },
}
RELEASE_TIMES = "preferred:10"
"""Broadcast releases happen at these of an agent's own sample counts, unless `schedule` says
otherwise."""
CHOICES: dict[str, tuple[str, ...]] = {
    "mode": ("paper", "tuned"),
    "data": ("uniform", "beta", "bernoulli", "rademacher", "normal"),
    "counter": ("pm1", "pm2", "toeplitz", "optimal"),
    "weights": ("last", "mean_of_means", "windowed", "gls"),
    "schedule": ("round_robin", "restricted_round_robin", "broadcast"),
    "collaboration": ("tests", "learned_prior", "pooled_prior", "james_stein", "none"),
    "test": ("lazy", "eager", "oracle"),
    "variance": ("known", "released", "from_releases", "bayesian", "jeffreys"),
    "noise": ("gaussian", "laplace"),
    "calibration": ("classical", "analytic"),
}
