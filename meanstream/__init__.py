"""Private mean estimation on event streams, with an error bar on every answer.

What Python users need is here; the transforms of Beam are in `meanstream.beam`. A name is imported
when it is first used: ``import meanstream`` loads no NumPy.

Examples
--------
>>> import meanstream
>>> settings = meanstream.AgentsSettings(lower=0, upper=1, epsilon=1.0, delta=1e-6)
>>> settings.horizon
40
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from meanstream.operators.agents.agents import Agents
    from meanstream.operators.agents.agents_settings import AgentsSettings
    from meanstream.operators.agents.running_mean import PrivateMean
    from meanstream.operators.collaboration.prior.mixture_prior import LearnedPrior
    from meanstream.operators.estimators.registry import ESTIMATORS, build_estimator
    from meanstream.operators.noise.keyed import KeyedNoise
    from meanstream.pipelines.frames.forecasts import (
        forecast_agents,
        simulate_agents,
        simulate_rounds,
    )
    from meanstream.pipelines.frames.plan_means import plan_means
    from meanstream.pipelines.frames.private_means import private_means
    from meanstream.pipelines.frames.private_windows import private_windows

    __version__: str

__all__ = [
    "ESTIMATORS",
    "Agents",
    "AgentsSettings",
    "KeyedNoise",
    "LearnedPrior",
    "PrivateMean",
    "__version__",
    "build_estimator",
    "forecast_agents",
    "plan_means",
    "private_means",
    "private_windows",
    "simulate_agents",
    "simulate_rounds",
]

_HOME = {
    "Agents": "meanstream.operators.agents.agents",
    "AgentsSettings": "meanstream.operators.agents.agents_settings",
    "ESTIMATORS": "meanstream.operators.estimators.registry",
    "KeyedNoise": "meanstream.operators.noise.keyed",
    "LearnedPrior": "meanstream.operators.collaboration.prior.mixture_prior",
    "PrivateMean": "meanstream.operators.agents.running_mean",
    "build_estimator": "meanstream.operators.estimators.registry",
    "forecast_agents": "meanstream.pipelines.frames.forecasts",
    "plan_means": "meanstream.pipelines.frames.plan_means",
    "private_means": "meanstream.pipelines.frames.private_means",
    "private_windows": "meanstream.pipelines.frames.private_windows",
    "simulate_agents": "meanstream.pipelines.frames.forecasts",
    "simulate_rounds": "meanstream.pipelines.frames.forecasts",
}


def __getattr__(name: str) -> Any:
    """Import the module of a public name when the name is first used."""
    if name == "__version__":
        from importlib.metadata import version  # noqa: PLC0415 - takes longer than everything else here

        value: Any = version("meanstream")
    elif name in _HOME:
        value = getattr(importlib.import_module(_HOME[name]), name)
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """List the public names and nothing else."""
    return [*__all__]
