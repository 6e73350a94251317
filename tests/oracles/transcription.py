"""Algorithm 1 of the paper, line by line: slow and obviously right, the oracle of the production
simulator.

Nothing here is shared with the production code but the dense matrix of the Toeplitz counter, which
is its definition. Paper symbols are used throughout: kappa, tau, theta, T, V, Z (noise of a p-sum),
W (noise of a released variance).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
from scipy.special import gamma, gammainc, ndtri, stdtrit

from meanstream.lab.simulation.config import SimulationConfig
from meanstream.operators.records import Floats, Ints


@dataclass(frozen=True, slots=True, kw_only=True)
class Inputs:
    """What is given to Algorithm 1.

    Attributes
    ----------
    config : SimulationConfig
        Which counter, weights, schedule, test and variance scheme.
    data, noise, variance_noise : float arrays, shape (steps, agents)
        `noise[t - 1, a]` is the fresh draw, of unit variance, of the p-sum that the query of agent
        a at t creates.
    noise_variance, variance_noise_variance : float
        Variance of the noise of one p-sum, in squared units of its sum; the same for released
        sample variances.
    variance : float array, shape (agents,)
        True variance of one sample, used where it is known.
    design_variance : float
        Variance of one sample that the weights gls assume.
    label : int array, shape (agents,), optional
        True classes, for the oracle test.
    matrix : float array, optional
        `B` of the Toeplitz counter: noise of the k-th release is `sum_e B[k, e] fresh_e`.
    """

    config: SimulationConfig
    data: Floats
    noise: Floats
    noise_variance: float
    variance: Floats
    design_variance: float
    variance_noise: Floats | None = None
    variance_noise_variance: float = 0.0
    label: Ints | None = None
    matrix: Floats | None = None


@dataclass(slots=True)
class Pair:
    """What agent a got of agent b, and the noise that b keeps for a."""

    times: list[int] = field(default_factory=list)
    Z: list[float] = field(default_factory=list)
    W: list[float] = field(default_factory=list)
    noisy_means: list[float] = field(default_factory=list)
    T: float = 0.0
    var_t: float = math.inf
    accepted: bool = True


def transcribe(given: Inputs) -> tuple[Floats, list[list[int]]]:
    """Run Algorithm 1 for every agent.

    Returns
    -------
    estimates : float array, shape (steps, agents)
    classes : list of lists
        The members of every agent's class after the last step, itself included.

    Examples
    --------
    >>> config = SimulationConfig.from_options(mode="paper", agents=2, steps=2)
    >>> flat = np.full((2, 2), 0.5)
    >>> zero = np.zeros((2, 2))
    >>> given = Inputs(
    ...     config=config, data=flat, noise=zero, noise_variance=1.0, variance=flat[0], design_variance=0.5
    ... )
    >>> transcribe(given)[0].tolist()
    [[0.5, 0.5], [0.5, 0.5]]
    """
    steps, M = given.data.shape
    pairs = [{b: Pair() for b in range(M) if b != a} for a in range(M)]
    if given.config.test == "oracle":
        for a in range(M):
            for b, pair in pairs[a].items():
                pair.accepted = _same_label(given, a, b)
    last_query: list[int] = [-1] * M
    estimates = np.empty((steps, M))
    for t in range(1, steps + 1):
        for a in range(M):
            asked = _choose_agent(given, pairs[a], t, last_query[a])
            if asked is not None:
                last_query[a] = asked
                _query(given, pairs[a][asked], t, a, asked)
            _decide(given, pairs[a], t, a, asked)
            estimates[t - 1, a] = _estimate(given, pairs[a], a, t)
    classes = [sorted([a] + [b for b, pair in pairs[a].items() if pair.accepted]) for a in range(M)]
    return estimates, classes


def _choose_agent(given: Inputs, pairs: dict[int, Pair], t: int, last_query: int) -> int | None:
    """Line 8: round robin over the others, or over the others in the class, in the order of their
    indices."""
    others = sorted(pairs)
    if given.config.schedule == "round_robin":
        return others[(t - 1) % len(others)]
    for b in [b for b in others if b > last_query] + [b for b in others if b <= last_query]:
        if pairs[b].accepted:
            return b
    return None


def _query(given: Inputs, pair: Pair, t: int, a: int, b: int) -> None:
    """Lines 9 to 11: b releases its mean to a; the statistic and its variance follow."""
    pair.times.append(t)
    pair.Z.append(math.sqrt(given.noise_variance) * given.noise[t - 1, a])
    if given.variance_noise is not None:
        pair.W.append(math.sqrt(given.variance_noise_variance) * given.variance_noise[t - 1, a])
    kappa = len(pair.times)
    B = _usage(given, kappa)
    noise = sum(B[kappa - 1, e] * pair.Z[e] for e in range(kappa))
    pair.noisy_means.append(float(np.mean(given.data[:t, b])) + noise / t)
    w = _weights_of_paper(given, pair.times, B)
    pair.T = sum(w[i] * pair.noisy_means[i] for i in range(kappa))
    V_b = _variance_estimate(given, pair, b)
    pair.var_t = _variance_of_paper(pair.times, w, V_b, B, given.noise_variance)


def _splits(given: Inputs, kappa: int) -> list[tuple[int, int]]:
    """Section IV: first and last release of each p-sum that makes up the kappa-th prefix sum."""
    if given.config.counter == "pm1":
        return [(i, i) for i in range(1, kappa + 1)]
    parts, start = [], 0
    for s in reversed(range(kappa.bit_length())):
        if kappa >> s & 1:
            parts.append((start + 1, start + 2**s))
            start += 2**s
    return parts


def _usage(given: Inputs, kappa: int) -> Floats:
    """B[k, e] = 1 if release k uses the noise drawn at release e; for Toeplitz the given
    weights."""
    if given.config.counter == "toeplitz":
        assert given.matrix is not None
        return given.matrix[:kappa, :kappa]
    B = np.zeros((kappa, kappa))
    for k in range(1, kappa + 1):
        B[k - 1, [last - 1 for _, last in _splits(given, k)]] = 1.0
    return B


def _weights_of_paper(given: Inputs, times: list[int], B: Floats) -> Floats:
    """Return the weights w_1 .. w_kappa of equation (1)."""
    kappa = len(times)
    w = np.zeros(kappa)
    if given.config.weights == "last":
        w[-1] = 1.0
    elif given.config.weights == "mean_of_means":
        w[:] = 1 / kappa
    elif given.config.weights == "windowed":
        first = 2 ** int(math.log2(kappa))
        w[first - 1 :] = 1 / (kappa - first + 1)
    else:
        t = np.array(times, dtype=float)
        covariance = given.design_variance / np.maximum.outer(t, t)
        covariance += given.noise_variance * (B @ B.T) / np.outer(t, t)
        w = np.linalg.solve(covariance, np.ones(kappa))
        w /= w.sum()
    return w


def _variance_of_paper(
    times: list[int], w: Floats, V_b: float, B: Floats, noise_variance: float
) -> float:
    """Equation (2), its noise term as corrected: every fresh draw counted with its total weight."""
    if math.isinf(V_b):
        return math.inf
    c = w / np.array(times, dtype=float)
    d = np.diff(times, prepend=0)
    from_data = sum(d[i] * np.sum(c[i:]) ** 2 for i in range(len(times)))
    from_noise = sum(np.sum(c[e:] * B[e:, e]) ** 2 for e in range(len(times)))
    return float(V_b * from_data + noise_variance * from_noise)


def _variance_estimate(given: Inputs, pair: Pair, b: int) -> float:
    """Line 11: V_b->a; infinite while there is none or if it is negative."""
    if given.config.variance == "known":
        return float(given.variance[b])
    V = (
        _released(given, pair, b)
        if given.config.variance == "released"
        else _from_releases(given, pair, b)
    )
    return V if V >= 0 else math.inf


def _parts(given: Inputs, pair: Pair, b: int) -> list[tuple[Floats, float, float]]:
    """Return each p-sum's raw data, its noise Z and, if variances are released, its W."""
    parts = []
    for first, last in _splits(given, len(pair.times)):
        start = pair.times[first - 2] if first > 1 else 0
        W = pair.W[last - 1] if pair.W else 0.0
        parts.append((given.data[start : pair.times[last - 1], b], pair.Z[last - 1], W))
    return parts


def _released(given: Inputs, pair: Pair, b: int) -> float:
    """Equations (6) to (8); for Toeplitz, whose draws mix, the accumulated noise instead of one W
    per p-sum."""
    t = pair.times[-1]
    if t < 2:
        return math.inf
    if given.config.counter == "toeplitz":
        return _released_mixed(given, pair, b)
    total, inverses, parts = 0.0, 0.0, _parts(given, pair, b)
    for x, Z, W in parts:
        d = len(x)
        within = float(np.sum(x**2) - np.sum(x) ** 2 / d) + (d - 1) / d * W
        total += within + (float(np.sum(x)) + Z) ** 2 / d
        inverses += 1 / d
    mean = pair.noisy_means[-1]
    return (total - t * mean**2 - given.noise_variance * (inverses - len(parts) / t)) / (t - 1)


def _released_mixed(given: Inputs, pair: Pair, b: int) -> float:
    t, kappa = pair.times[-1], len(pair.times)
    B = _usage(given, kappa)
    starts = [0, *pair.times[:-1]]
    x = [given.data[s:e, b] for s, e in zip(starts, pair.times, strict=True)]
    d, G, v = _increments(given, pair)
    within = sum(float(np.sum(part**2) - np.sum(part) ** 2 / len(part)) for part in x)
    total = within + float(B[-1] @ np.array(pair.W)) + float(np.sum(G**2 / d))
    noise = given.noise_variance * float(np.sum(v / d) - B[-1] @ B[-1] / t)
    return (total - t * pair.noisy_means[-1] ** 2 - noise) / (t - 1)


def _increments(given: Inputs, pair: Pair) -> tuple[Floats, Floats, Floats]:
    """Lengths of the intervals between releases, increments of the noisy sums, and the variances of
    their noise."""
    B = _usage(given, len(pair.times))
    d = np.diff(pair.times, prepend=0).astype(float)
    G = np.diff(np.array(pair.times) * np.array(pair.noisy_means), prepend=0.0)
    v = np.sum(np.diff(B, axis=0, prepend=0.0) ** 2, axis=1)
    return d, G, v


def _from_releases(given: Inputs, pair: Pair, b: int) -> float:
    """Equation (16), (19) or footnote 3; in mode tuned the unbiased form from the increments of the
    releases."""
    if given.config.mode == "tuned" and given.config.variance == "from_releases":
        return _from_increments(given, pair)
    parts = _parts(given, pair, b)
    k = len(parts)
    if k < 2:
        return math.inf
    d = np.array([len(x) for x, _, _ in parts], dtype=float)
    G = np.array([np.sum(x) + Z for x, Z, _ in parts])
    Y = G / np.sqrt(d)
    V_prime = float(np.sum(Y**2) / (k - 1) - np.sum(Y) ** 2 / (k * (k - 1)))
    noise = given.noise_variance * float(np.mean(1 / d))
    if given.config.variance == "from_releases" or V_prime >= noise:
        return V_prime - noise
    x = (k - 1) * V_prime / (2 * noise)

    shape = {"bayesian": (k + 2) / 2, "jeffreys": (k + 1) / 2, "uniform": (k - 2) / 2}[
        given.config.variance
    ]
    if shape <= 1:  # no posterior mean: as without an estimate
        return math.inf

    def f(s: int) -> float:
        return float(gamma(shape + s) * gammainc(shape + s, x))

    return V_prime * (k - 1) / 2 * f(-1) / f(0) - noise


def _from_increments(given: Inputs, pair: Pair) -> float:
    d, G, v = _increments(given, pair)
    k, t = len(d), pair.times[-1]
    if k < 2:
        return math.inf
    T = pair.noisy_means[-1]
    B = _usage(given, k)
    noise = given.noise_variance * float(np.sum(v / d) - B[-1] @ B[-1] / t)
    return float((np.sum((G - d * T) ** 2 / d) - noise) / (k - 1))


def _decide(given: Inputs, pairs: dict[int, Pair], t: int, a: int, asked: int | None) -> None:
    """Line 13: test the agent just asked (lazy) or everyone (eager); the oracle's classes never
    change."""
    if given.config.test == "oracle":
        return
    tested = (
        pairs.values() if given.config.test == "eager" else [] if asked is None else [pairs[asked]]
    )
    own = given.data[:t, a]
    V_a = _own_variance_of_paper(given, own, a)
    for pair in tested:
        if pair.times:
            pair.accepted = _accepts(given, own, V_a, pair)


def _accepts(given: Inputs, own: Floats, own_variance: float, pair: Pair) -> bool:
    """Section III-C: the test with known variance, or Welch's with the printed degrees of
    freedom."""
    t = len(own)
    theta = given.config.significance / math.log(t + 1)
    x, y = own_variance / t, pair.var_t
    if math.isinf(x) or math.isinf(y):
        return True
    z = float(ndtri(1 - theta / 2))
    if given.config.variance != "known":
        nu = (x + y) ** 2 / (x**2 / (t - 1) + y**2 / (pair.times[-1] - 1))
        z = float(stdtrit(nu, 1 - theta / 2))
    return abs(float(np.mean(own)) - pair.T) < z * math.sqrt(x + y)


def _own_variance_of_paper(given: Inputs, own: Floats, a: int) -> float:
    """V_a of section III-C2, or sigma_a^2; samples that are all equal count as if one more had been
    off by L."""
    t = len(own)
    if given.config.variance == "known":
        return float(given.variance[a])
    if t == 1:
        return math.inf
    return float(np.var(own, ddof=1)) or given.config.half_width**2 / t


def _estimate(given: Inputs, pairs: dict[int, Pair], a: int, t: int) -> float:
    """Line 14, equations (3) and (5); with no variance of its own yet, an agent's estimate is its
    mean."""
    own = given.data[:t, a]
    V_a = _own_variance_of_paper(given, own, a)
    mean = float(np.mean(own))
    if math.isinf(V_a) or given.config.collaboration == "none":
        return mean
    total, numerator = t / V_a, mean * t / V_a
    for pair in pairs.values():
        if pair.accepted and pair.times:
            total += 1 / pair.var_t
            numerator += pair.T / pair.var_t
    return numerator / total


def _same_label(given: Inputs, a: int, b: int) -> bool:
    assert given.label is not None
    return bool(given.label[a] == given.label[b])
