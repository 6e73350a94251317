"""The reference core, first part: keys, random bits and draws, one at a time and as their definitions read.

Nothing here is shared with the product. Draws are found by searching the exact tail of their law with
fifty digits, where the product inverts it in floating point.

| letter | meaning |
|---|---|
| `a` | probability of 0 under staircase noise |
| `gamma` | width of its first step, in grid units |
| `q` | `exp(-1 / scale)` of Laplace noise |
| `u` | probability of the tail beyond a draw's magnitude, from its 127 bits |
"""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal, localcontext
from functools import cache
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

DIGITS = 50
EDGES = 1024
NEGLIGIBLE = 60.0
"""Exponent from which on a step of the staircase adds nothing to its variance."""


@dataclass(frozen=True)
class ReferenceKey:
    """Random bits of one purpose of a deployment."""

    secret: bytes
    deployment: str
    purpose: str

    def derived(self, purpose: str, settings: dict[str, Any]) -> ReferenceKey:
        """Give the key of one purpose under these settings."""
        spelled = json.dumps(settings, sort_keys=True, separators=(",", ":")).encode()
        digest = hashlib.sha256(spelled).hexdigest()
        return ReferenceKey(self._hkdf("derived"), self.deployment, f"{purpose} {digest}")

    def version(self, first: int, second: int) -> int:
        """Digest two numbers of 64 bits to 64 bits."""
        block = _int64(first) + _int64(second)
        return int.from_bytes(_aes(self._hkdf("version"), block)[:8], "little")

    def bits(self, owner: str, index: int, version: int, draw: int) -> int:
        """Give 128 bits for one draw of one release: CBC-MAC over three blocks."""
        key = self._hkdf("noise")
        blocks = [
            hashlib.blake2b(owner.encode(), digest_size=16).digest(),
            (index << 16 | draw).to_bytes(16, "little"),
            version.to_bytes(16, "little"),
        ]

        chain = bytes(16)
        for block in blocks:
            chain = _aes(key, bytes(x ^ y for x, y in zip(chain, block, strict=True)))

        # The first word has the sign and the upper bits of the magnitude.
        high = int.from_bytes(chain[:8], "little")
        low = int.from_bytes(chain[8:], "little")
        return high << 64 | low

    def _hkdf(self, label: str) -> bytes:
        """Derive a key of 32 bytes by HKDF-SHA-256 (RFC 5869), one block of output."""
        info = b""
        for part in ("meanstream 1", label, self.deployment, self.purpose):
            encoded = part.encode()
            info += len(encoded).to_bytes(4, "big") + encoded

        extracted = hmac.new(bytes(32), self.secret, hashlib.sha256).digest()
        return hmac.new(extracted, info + b"\x01", hashlib.sha256).digest()


def laplace_draw(bits: int, scale: float) -> int:
    """Draw from the discrete Laplace law: `P(|K| >= j) = 2 q^j / (1 + q)`."""
    with localcontext() as context:
        context.prec = DIGITS
        q = (-1 / Decimal(scale)).exp()
        return _largest(bits, lambda j: 2 * q**j / (1 + q), beyond=round(200 * scale) + 200)


def staircase_draw(bits: int, span: int, epsilon: float) -> int:
    """Draw from the discrete staircase law of sensitivity `span`.

    `P(K = i) = a exp(-epsilon m)` for `i = m span + s`, one step lower from `s = gamma` on.
    """
    gamma = staircase_edge(span, epsilon)
    with localcontext() as context:
        context.prec = DIGITS
        ratio = (-Decimal(epsilon)).exp()
        # All probabilities add up to 1: 2 a (gamma + ratio (span - gamma)) / (1 - ratio) - a.
        steps = 2 * (gamma + ratio * (span - gamma)) / (1 - ratio)
        a = 1 / (steps - 1)

        def tail(j: int) -> Decimal:
            m, s = divmod(j, span)
            before = a * (min(s, gamma) + ratio * max(s - gamma, 0))
            return 2 * ratio**m * ((1 + a) / 2 - before)

        return _largest(bits, tail, beyond=round(200 / epsilon + 2) * span)


@cache
def staircase_edge(span: int, epsilon: float) -> int:
    """Give the first step's width of least variance, among those that are spaced evenly."""
    edges = np.unique(np.maximum(span * np.arange(1, EDGES + 1) // EDGES, 1))
    variances = [staircase_variance(span, int(edge), epsilon) for edge in edges]
    return int(edges[int(np.argmin(variances))])


@cache
def staircase_variance(span: int, gamma: int, epsilon: float) -> float:
    """Give the variance: a sum over all steps, each of `span` integers in two parts."""
    ratio = np.exp(-epsilon)
    # Sums of s^0, s^1, s^2 over the integers below the edge and behind it.
    below = _power_sums(gamma)
    behind = _power_sums(span) - below
    weighed = below + ratio * behind

    m = np.arange(int(NEGLIGIBLE / epsilon) + 2)
    weight = np.exp(-epsilon * m)
    squares = (m * span) ** 2.0 * weighed[0] + 2.0 * m * span * weighed[1] + weighed[2]

    # Each magnitude but 0 stands for two integers.
    mass = 2 * float((weight * weighed[0]).sum()) - 1
    return 2 * float((weight * squares).sum()) / mass


def _largest(bits: int, tail: Callable[[int], Decimal], *, beyond: int) -> int:
    """Give the signed draw: its magnitude is the largest whose tail is no less probable than the bits say."""
    sign = -1 if bits >> 127 else 1
    u = (Decimal(bits & (2**127 - 1)) + Decimal("0.5")) / Decimal(2) ** 127

    low = 0
    high = beyond
    while high - low > 1:
        middle = (low + high) // 2
        if tail(middle) >= u:
            low = middle
        else:
            high = middle

    return sign * low


def _power_sums(n: int) -> np.ndarray:
    s = np.arange(n, dtype=np.float64)
    return np.array([float(n), s.sum(), (s * s).sum()])


def _aes(key: bytes, block: bytes) -> bytes:
    """Encrypt one block."""
    context = Cipher(algorithms.AES(key), modes.ECB()).encryptor()  # noqa: S305 - one block
    return context.update(block) + context.finalize()


def _int64(number: int) -> bytes:
    return (number % 2**64).to_bytes(8, "little")
