"""The probabilities of a binomial law, without what else SciPy's statistics load."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from meanstream.operators.records import Floats

_probability: Callable[..., Any]
try:
    from scipy.special._ufuncs import _binom_pmf as _probability
except ImportError:  # it is SciPy's own affair where it has this
    from scipy.stats import binom

    _probability = binom.pmf


def binomial_probability(ones: npt.ArrayLike, trials: int, chance: float) -> Floats:
    """Compute the probability of that many ones in some trials, as `scipy.stats.binom.pmf` does.

    SciPy's statistics take most of a second to import, which every start of a plan would wait for.

    Parameters
    ----------
    ones : int array (k,)
        From 0 to `trials`.
    trials : int
        Number of trials.
    chance : float
        Of a one.

    Examples
    --------
    >>> binomial_probability([0, 1, 2], 2, 0.5).round(12).tolist()
    [0.25, 0.5, 0.25]
    """
    return np.asarray(_probability(ones, trials, chance), np.float64)
