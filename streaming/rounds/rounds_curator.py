"""Central trust: a curator who sees the samples runs the round of one window.

Noise is drawn once, after adding up.

Both hosts call these functions with the same arguments and therefore write the same bytes. The
names differ from those of local rounds on purpose: what is added up here is private until `release`
has noised it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import cast

from meanstream.operators.rounds.central_rounds import CentralEstimator, CentralRound, ReleaseWords
from meanstream.operators.rounds.round_records import Estimate, Public, Summaries, Tally
from meanstream.operators.validation import require
from meanstream.streaming.events.encode import EventLines, encode_columns_as_lines
from meanstream.streaming.events.round_events import Charge
from meanstream.streaming.rounds.window_round import WindowRound

NO_SIDES = "a trusted curator sees every sample, so there is no users' side that protects itself"
"""Why a round with a curator cannot be split into two sides."""


def _curator_of(this: WindowRound) -> CentralEstimator:
    """Give the estimator of a round with a trusted curator."""
    estimator = this.estimator
    require(
        estimator.trust == "central", "estimator", "be one of central trust here", estimator.name
    )

    return cast(CentralEstimator, estimator)


def curator_sum(this: WindowRound, release: int, public: Public, summaries: Summaries) -> Tally:
    """Private: add up what one release asks of some of the users, exactly and without noise, in any order."""
    step: CentralRound = _curator_of(this).rounds[release]
    asked = summaries.take(this.stage_of(summaries.user) == step.cohort)

    if len(asked):
        return step.tally(step.encode(asked, public), public)
    return Tally()


def curator_noise_once(
    this: WindowRound, secret: bytes, release: int, public: Public, tally: Tally
) -> Public | Estimate:
    """Private to public: noise what everyone's samples add up to.

    The estimate on [-1, 1], after the last release.

    Notes
    -----
    **Privacy.** The noise is a function of the secret, the round's id, the protocol, the release, what was released
    before it and the exact sums: a second call repeats what was released, and other sums have other noise.
    """
    noise = this.stage_noise(secret, release, public)
    words = ReleaseWords(noise, this.id, release, tally)
    return this.checked(release, _curator_of(this).rounds[release].release(tally, public, words))


def curator_charge_lines(this: WindowRound, users: Sequence[str], answer: EventLines) -> EventLines:
    """Write what each user is charged for an answer as events, in the order of the users."""
    estimator = _curator_of(this)
    constants = {
        "round_id": this.id,
        "epsilon": float(estimator.epsilon),
        "delta": float(estimator.delta),
        "released": hashlib.sha256(answer.lines[0]).hexdigest(),
    }

    return encode_columns_as_lines(Charge, {"user": list(users)}, constants)
