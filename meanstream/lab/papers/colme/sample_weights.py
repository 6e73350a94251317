"""The weights of a linear statistic `T = sum_i w_i (mean_i + noise_i)` over the releases of one stream."""

from __future__ import annotations

import numpy as np
from scipy.linalg import cholesky, solve_triangular

from meanstream.operators.records import Floats, Ints
from meanstream.operators.validation import require

WEIGHTS = ("last", "mean_of_means", "windowed", "gls")
"""Names of the weightings; "gls" needs the covariance of the releases, the others only their
number."""


def weights(name: str, n: int, *, covariance: Floats | None = None) -> Floats:
    """Return the weights after `n` releases; they add to 1.

    Parameters
    ----------
    name : {"last", "mean_of_means", "windowed", "gls"}
        "last": the newest release (the papers' non-MoM). "mean_of_means": all equally (MoM).
        "windowed": equally from the release `2**floor(log2 n)` on (wMoM). "gls": generalized least
        squares, the least variance of all weights for the given covariance.
    n : int
        Number of releases, at least 1.
    covariance : float array, shape (n, n), optional
        Covariance of the released means (`statistic_release_covariance`); for "gls", and only
        there.

    Notes
    -----
    Weights depend on counts and known variances only: combining releases is post-processing and costs no privacy.

    Examples
    --------
    >>> weights("windowed", 5).tolist(), weights("last", 3).tolist()
    ([0.0, 0.0, 0.0, 0.5, 0.5], [0.0, 0.0, 1.0])
    >>> import numpy as np
    >>> weights("gls", 2, covariance=np.diag([1.0, 3.0])).round(6).tolist()
    [0.75, 0.25]

    References
    ----------
    Yakimenka et al., equation (1), sections III-A and IV-B. Aitken (1935) for generalized least squares.
    """
    _require_weights(name)
    require(n >= 1, "n", "be at least 1", n)
    require(
        (covariance is not None) == (name == "gls"),
        "covariance",
        "be given for gls and only there",
        name,
    )

    if covariance is not None:
        require(
            covariance.shape == (n, n), "covariance", f"have shape ({n}, {n})", covariance.shape
        )
        best: Floats = weights_gls_table(covariance)[-1]

        return best

    return _constant_from(int(weights_window_start(name, np.asarray(n))), n)


def weights_window_start(name: str, release: Ints) -> Ints:
    """Return the first release that has weight, for the weightings that are equal from there on.

    Examples
    --------
    >>> import numpy as np
    >>> weights_window_start("windowed", np.array([1, 3, 4, 7, 8])).tolist()
    [1, 2, 4, 4, 8]
    """
    _require_weights(name)
    release = np.asarray(release, dtype=np.int64)
    if name == "last":
        return release
    if name == "mean_of_means":
        return np.ones_like(release)

    require(name == "windowed", "weights", "be last, mean_of_means or windowed here", name)
    _, exponent = np.frexp(release.astype(np.float64))  # exact for release < 2**53
    return np.left_shift(np.int64(1), exponent.astype(np.int64) - 1)


def weights_gain(name: str, release: Ints) -> Floats:
    """Return by how much a new release moves the statistic.

    `T_k = T_{k-1} + gain_k (release_k - T_{k-1})`.

    Examples
    --------
    >>> import numpy as np
    >>> weights_gain("windowed", np.array([1, 2, 3, 4, 5])).tolist()
    [1.0, 1.0, 0.5, 1.0, 0.5]
    """
    release = np.asarray(release, dtype=np.int64)
    return 1.0 / (release - weights_window_start(name, release) + 1)


def weights_gls_table(covariance: Floats) -> Floats:
    """Return the least-variance weights after 1, ..., n releases as rows, from one Cholesky factor.

    Parameters
    ----------
    covariance : float array, shape (n, n)
        Covariance of the releases.

    Notes
    -----
    With the lower Cholesky factor `L`, the whitened releases `L^{-1} y` are uncorrelated estimates with coefficients
    `a = L^{-1} 1`; leading blocks share `L`, so the best estimate after `k` releases is
    `sum_{i <= k} a_i (L^{-1} y)_i / sum_{i <= k} a_i**2`, and its variance is one over that denominator. The releases
    are scaled to standard deviation 1 first: their variances span orders of magnitude.

    Examples
    --------
    >>> import numpy as np
    >>> weights_gls_table(np.diag([1.0, 3.0])).round(6).tolist()
    [[1.0, 0.0], [0.75, 0.25]]
    """
    factor, scale = _scaled_factor(covariance)
    whiten = solve_triangular(factor, np.diag(1.0 / scale), lower=True)
    coefficient = whiten.sum(axis=1)
    table: Floats = np.cumsum(coefficient[:, np.newaxis] * whiten, axis=0)
    table /= np.cumsum(coefficient**2)[:, np.newaxis]

    return table


def weights_gls_variance(covariance: Floats) -> Floats:
    """Return the variance of the best estimate after 1, ..., n releases.

    That of the rows of `weights_gls_table`.

    Examples
    --------
    >>> import numpy as np
    >>> weights_gls_variance(np.diag([1.0, 3.0])).round(6).tolist()
    [1.0, 0.75]
    """
    factor, scale = _scaled_factor(covariance)
    coefficient = solve_triangular(factor, 1.0 / scale, lower=True)
    return np.asarray(1.0 / np.cumsum(coefficient**2))


def _scaled_factor(covariance: Floats) -> tuple[Floats, Floats]:
    """Return the lower Cholesky factor of the correlations, and the standard deviations."""
    scale = np.sqrt(np.diag(covariance))
    factor: Floats = cholesky(covariance / np.multiply.outer(scale, scale), lower=True)
    return factor, scale


def _require_weights(name: str) -> None:
    """Refuse a name that is not one of `WEIGHTS`."""
    require(name in WEIGHTS, "weights", f"be one of {', '.join(WEIGHTS)}", name)


def _constant_from(start: int, n: int) -> Floats:
    """Return equal weights for the releases `start..n`."""
    equal = np.zeros(n)
    equal[start - 1 :] = 1.0 / (n - start + 1)
    return equal
