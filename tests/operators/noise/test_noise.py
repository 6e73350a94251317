"""Keyed bits are a pure function of their ids; the distributions are the exact ones.

Statistical tests are seeded by their fixed secret; the false-alarm rate stated is what it would be
over all secrets.
"""

import copy
import decimal
import hashlib
import hmac
import itertools
import math
import struct
from decimal import Decimal

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from scipy import stats

from meanstream.operators.forecast.simulated_noise import SimulationNoise
from meanstream.operators.noise.keyed import (
    GaussianNoise,
    KeyedNoise,
    LaplaceNoise,
    NoiseIds,
    keyed_owner_words,
)
from meanstream.operators.records import Floats, Words
from tests.oracles.implemented_laws import implemented_pmf

SECRET = b"sixteen bytes or"
N = 100_000
SCALES = (0.7, 3.0, 40.0)
KNOWN_BITS = [
    [15287707390629301523, 9738150400047285227],
    [18128307380853486097, 9116745472548885518],
]
KNOWN_VERSION = [9172502407626012501]


def keyed(deployment: str = "test", purpose: str = "release", secret: bytes = SECRET) -> KeyedNoise:
    return KeyedNoise.of_judged_key(
        secret, deployment=deployment, purpose=purpose
    )  # bits are of before keys were judged


def ids(n: int = N, *, owner: str = "a", first_index: int = 1, version: int = 7) -> NoiseIds:
    owners = np.repeat(keyed_owner_words([owner]), n, axis=0)
    return NoiseIds(
        owners, np.arange(first_index, first_index + n), np.full(n, version, dtype=np.uint64)
    )


def test_known_answer() -> None:
    """Releases must replay for ever: a change of these bits is a change of everyone's noise."""
    assert keyed().bits(ids(2), draw=3).tolist() == KNOWN_BITS
    assert keyed().version_of(np.array([10]), np.array([531])).tolist() == KNOWN_VERSION


def test_the_bits_are_cbc_mac_under_an_hkdf_key() -> None:
    """The same construction from its textbook parts: HKDF by hand, AES in CBC mode with a zero
    initial block."""
    info = b"".join(
        len(part).to_bytes(4, "big") + part
        for part in (b"meanstream 1", b"noise", b"test", b"release")
    )
    extracted = hmac.digest(bytes(32), SECRET, "sha256")
    key = hmac.digest(extracted, info + b"\x01", "sha256")
    owner = hashlib.blake2b(b"a", digest_size=16).digest()
    message = owner + struct.pack("<QQ", 5 << 16 | 3, 0) + struct.pack("<QQ", 7, 0)
    mac = Cipher(algorithms.AES(key), modes.CBC(bytes(16))).encryptor().update(message)[-16:]
    assert keyed().bits(ids(1, first_index=5), draw=3).tolist() == [list(struct.unpack("<QQ", mac))]


def test_the_same_ids_give_the_same_bits_in_every_batch() -> None:
    some = ids(20_000)
    whole = keyed().bits(some)
    assert np.array_equal(whole, keyed().bits(some))
    for cut in (1, 4095, 8192, 13_001):
        parts = [
            NoiseIds(some.owner[s], some.index[s], some.version[s])
            for s in (slice(cut), slice(cut, None))
        ]
        assert np.array_equal(np.concatenate([keyed().bits(part) for part in parts]), whole)
    backwards = NoiseIds(some.owner[::-1], some.index[::-1], some.version[::-1])
    assert np.array_equal(keyed().bits(backwards)[::-1], whole)
    assert keyed().bits(ids(0)).shape == (0, 2)


@pytest.mark.parametrize("kind", [GaussianNoise, LaplaceNoise])
def test_a_sample_does_not_depend_on_its_batch(kind: type) -> None:
    bits = keyed().bits(ids(1000))
    before = bits.copy()
    whole = kind(12.5).sample(bits)
    assert np.array_equal(bits, before)
    for size in (1, 7, 64, 999):
        parts = [kind(12.5).sample(bits[start : start + size]) for start in range(0, 1000, size)]
        assert np.array_equal(np.concatenate(parts), whole)


def variants() -> dict[str, Words]:
    base = ids()
    return {
        "base": keyed().bits(base),
        "draw": keyed().bits(base, draw=1),
        "index": keyed().bits(ids(first_index=N + 1)),
        "version": keyed().bits(ids(version=8)),
        "owner": keyed().bits(ids(owner="b")),
        "deployment": keyed(deployment="other").bits(base),
        "purpose": keyed(purpose="vote").bits(base),
        "name shifted": keyed(deployment="testr", purpose="elease").bits(base),
        "secret": keyed(secret=b"sixteen bytes of").bits(base),
    }


def test_changing_any_part_of_an_id_gives_independent_noise() -> None:
    """36 correlations within 6 standard errors: false alarm 7e-8."""
    samples = {name: GaussianNoise(1.0).sample(bits) for name, bits in variants().items()}
    for (_, x), (_, y) in itertools.combinations(samples.items(), 2):
        assert abs(np.mean(x * y)) < 6 / math.sqrt(N)


def test_every_bit_is_fair_and_independent_of_its_neighbors() -> None:
    """128 frequencies and 127 correlations of neighboring bits within 6 standard errors: false
    alarm 5e-7."""
    words = keyed().bits(ids())
    bits = (words[:, :, np.newaxis] >> np.arange(64, dtype=np.uint64) & np.uint64(1)).reshape(
        N, 128
    ) * 2.0 - 1.0
    assert np.abs(bits.mean(axis=0)).max() < 6 / math.sqrt(N)
    assert np.abs((bits[:, 1:] * bits[:, :-1]).mean(axis=0)).max() < 6 / math.sqrt(N)


def test_consecutive_releases_are_independent() -> None:
    """20 autocorrelations within 6 standard errors: false alarm 4e-8."""
    sample = GaussianNoise(1.0).sample(keyed().bits(ids()))
    for lag in range(1, 21):
        assert abs(np.mean(sample[lag:] * sample[:-lag])) < 6 / math.sqrt(N - lag)


def test_versions_are_keyed_digests_of_the_exact_input() -> None:
    count, total = np.meshgrid(np.arange(100), np.arange(-50, 50))
    versions = keyed().version_of(count.ravel(), total.ravel())
    assert len(set(versions.tolist())) == versions.size
    assert np.array_equal(versions[:7], keyed().version_of(count.ravel()[:7], total.ravel()[:7]))
    others = (keyed(deployment="x"), keyed(purpose="x"), keyed(secret=b"sixteen bytes of"))
    for other in others:
        assert not np.any(versions == other.version_of(count.ravel(), total.ravel()))


def test_the_secret_is_never_shown_and_never_leaves() -> None:
    noise = keyed()
    assert repr(noise) == "KeyedNoise(secret=<hidden>, deployment='test', purpose='release')"
    assert SECRET.decode() not in repr(noise) + str(noise) + str(vars(type(noise)))
    assert not hasattr(noise, "__dict__")
    assert copy.deepcopy(noise) is noise
    assert copy.copy(noise) is noise
    with pytest.raises(TypeError, match="KeyedNoise cannot be pickled"):
        noise.__reduce_ex__(5)


def test_ids_out_of_range_are_refused() -> None:
    with pytest.raises(ValueError, match="draw must lie between 0 and 65535, got 65536"):
        keyed().bits(ids(1), draw=2**16)
    for index in (-1, 2**47):
        with pytest.raises(ValueError, match="index must lie between"):
            keyed().bits(ids(1, first_index=index))
    with pytest.raises(ValueError, match="ids must have the shapes"):
        NoiseIds(keyed_owner_words(["a"]), np.array([1, 2]), np.zeros(2, dtype=np.uint64))
    with pytest.raises(ValueError, match="purpose must be a non-empty name"):
        keyed(purpose="")


def test_owner_words_tell_all_ids_apart() -> None:
    names = ["", "a", "b", "ab", "\N{SNOWMAN}", "\ud800", *map(str, range(1000))]
    assert len({tuple(row) for row in keyed_owner_words(names).tolist()}) == len(names)
    assert keyed_owner_words([]).shape == (0, 2)


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("kind", [GaussianNoise, LaplaceNoise])
@pytest.mark.parametrize("source", ["keyed", "simulation"])
def test_chi_square_against_the_exact_pmf(kind: type, scale: float, source: str) -> None:
    """12 cases at a false-alarm rate of 1e-6 each."""
    noise = kind(scale)
    bits = keyed().bits(ids()) if source == "keyed" else SimulationNoise(seed=5).bits(ids())
    observed = np.rint(noise.sample(bits)).astype(np.int64)
    largest = int(
        np.searchsorted(-N * noise.pmf(np.arange(10_000)), -10.0)
    )  # bins with at least 10 expected
    values = np.arange(-largest + 1, largest)
    expected = N * noise.pmf(values)
    counts = np.array([np.count_nonzero(observed == k) for k in values])
    outside = N - counts.sum(), N - expected.sum()
    statistic = ((counts - expected) ** 2 / expected).sum() + (
        outside[0] - outside[1]
    ) ** 2 / outside[1]
    assert stats.chi2.sf(statistic, len(values)) > 1e-6


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("kind", [GaussianNoise, LaplaceNoise])
def test_mean_and_variance(kind: type, scale: float) -> None:
    """Within 5 standard errors, 12 comparisons: false alarm 7e-6."""
    noise = kind(scale)
    sample = noise.sample(keyed().bits(ids()))
    assert abs(sample.mean()) < 5 * math.sqrt(noise.variance / N)
    fourth = np.mean(sample**4)
    assert abs(sample.var() - noise.variance) < 5 * math.sqrt((fourth - noise.variance**2) / N)


@pytest.mark.parametrize("scale", [1e-4, 0.05, *SCALES])
def test_the_pmf_sums_to_one_and_laplace_variance_is_that_of_its_pmf(scale: float) -> None:
    k = np.arange(-4000, 4001)
    for noise in (GaussianNoise(scale), LaplaceNoise(scale)):
        assert noise.pmf(k).sum() == pytest.approx(1.0, abs=1e-12)
        assert noise.cdf(k + 0.5) == pytest.approx(np.cumsum(noise.pmf(k)), abs=1e-12)
    laplace = LaplaceNoise(scale)
    assert laplace.variance == pytest.approx(float((k**2 * laplace.pmf(k)).sum()), rel=1e-9)


def laplace_pmf_exactly(scale: float, k: int) -> Decimal:
    q = (-1 / Decimal(scale)).exp()
    return (1 - q) / (1 + q) * q ** abs(k)


@pytest.mark.parametrize("scale", SCALES)
def test_the_laplace_sampler_is_exact_within_its_stated_slack(scale: float) -> None:
    """Every probability, counted over all 2**128 inputs: off by epsilon_slack / 2 of itself and
    2**-126 at most."""
    largest = int(80 * scale)
    with decimal.localcontext(prec=60):
        exact = [laplace_pmf_exactly(scale, k) for k in range(-largest, largest + 1)]
        counted = map(Decimal, implemented_pmf(LaplaceNoise(scale), largest).tolist())
        allowed = Decimal(LaplaceNoise(scale).epsilon_slack / 2)
        errors = [
            (abs(p - e) - Decimal(2) ** -126) / e for p, e in zip(counted, exact, strict=True)
        ]
    assert max(errors) <= allowed
    assert 1 - sum(exact) < Decimal(2) ** -64


@pytest.mark.parametrize("stddev", SCALES)
def test_the_gaussian_sampler_is_exact_within_its_stated_slack(stddev: float) -> None:
    """As for Laplace; the reference is SciPy's distribution function, good to 2e-13 relative after
    differencing."""
    largest = math.ceil(12 * stddev)
    exact: Floats = GaussianNoise(stddev).pmf(np.arange(-largest, largest + 1))
    counted = implemented_pmf(GaussianNoise(stddev), largest)
    errors = (np.abs(counted - exact) - 2.0**-126) / exact
    assert errors.max() <= GaussianNoise(stddev).epsilon_slack / 2 + 2e-13
    assert 2 * stats.norm.sf((largest + 0.5) / stddev) < GaussianNoise(stddev).tail_delta


@pytest.mark.parametrize("scale", [0.7, 3.0])
def test_what_the_bits_miss_stays_below_tail_delta(scale: float) -> None:
    """The extreme inputs: finite, symmetric, and beyond them a probability of 2**-127."""
    rows = np.array(
        [[0, 0], [2**63, 0], [2**63 - 1, 2**64 - 1], [2**64 - 1, 2**64 - 1]], dtype=np.uint64
    )
    for noise in (GaussianNoise(scale), LaplaceNoise(scale)):
        largest, negative, least, minus_least = noise.sample(rows).tolist()
        assert largest == -negative
        assert abs(least) == abs(minus_least) == 0.0
        beyond = noise.pmf(np.arange(math.ceil(largest) + 2, math.ceil(largest) + 400)).sum()
        assert 2 * beyond <= 2.0**-126 < noise.tail_delta


@pytest.mark.parametrize("kind", [GaussianNoise, LaplaceNoise])
@pytest.mark.parametrize("scale", [0.0, -1.0, math.nan, math.inf, 2.0**41])
def test_bad_widths_are_refused(kind: type, scale: float) -> None:
    with pytest.raises(ValueError, match=r"(stddev|scale) must be (positive and finite|at most)"):
        kind(scale)


def test_simulation_noise_is_seeded_and_fresh() -> None:
    first, second = SimulationNoise(seed=3), SimulationNoise(seed=3)
    some = ids(100)
    once = first.bits(some)
    assert np.array_equal(once, second.bits(some))
    assert not np.any(once == first.bits(some))
    assert not np.any(once == SimulationNoise(seed=4).bits(some))
    assert first.version_of(some.index, some.index).tolist() == [0] * 100
    assert copy.deepcopy(first) is first
    assert repr(first) == "SimulationNoise(seed=3)"


def test_what_is_stated_of_each_draw_is_pinned() -> None:
    """The totals of a configuration are sums of these: a looser one would be charged, a tighter one
    is not proved."""
    for noise in (GaussianNoise(3.0), LaplaceNoise(3.0)):
        assert noise.tail_delta == 2.0**-64
    slack = {
        width: (GaussianNoise(width).epsilon_slack, LaplaceNoise(width).epsilon_slack)
        for width in (0.5, 1.0, 64.0)
    }
    assert slack == {
        0.5: (2.0**-40, 2.0**-43),
        1.0: (2.0**-40, 2.0**-43),
        64.0: (2.0**-38, 2.0**-37),
    }
    assert GaussianNoise(3.0).variance == 9.0


def test_what_is_just_within_range_is_taken() -> None:
    assert GaussianNoise(2.0**40).stddev == LaplaceNoise(2.0**40).scale == 2.0**40
    for kind in (GaussianNoise, LaplaceNoise):
        with pytest.raises(ValueError, match=r"must be at most 2\*\*40 grid units"):
            kind(math.nextafter(2.0**40, math.inf))
    assert keyed().bits(ids(1, first_index=0), draw=2**16 - 1).shape == (1, 2)
    assert keyed().bits(ids(1, first_index=2**47 - 1)).shape == (1, 2)
    with pytest.raises(ValueError, match="deployment must be a non-empty name"):
        keyed(deployment="")
