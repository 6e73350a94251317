"""The private mean of one stream as a statistic that can be pickled, without the key of its noise."""

from __future__ import annotations

import copy
from typing import Any, Self

from meanstream.integrations.river.environment_key import noise_of_environment
from meanstream.operators.agents import running_mean


class PrivateMean(running_mean.PrivateMean):
    """`meanstream.PrivateMean`, pickled as its `snapshot`, without the key of its noise.

    Notes
    -----
    **Privacy.** As `meanstream.PrivateMean`. A pickle holds the raw sum. Load it once: two instances that go on with
    different data are two releases. A copy of an empty instance has noise of its own, and one with samples is refused.
    """

    def __reduce__(self) -> tuple[Any, ...]:
        """Leave the key out."""
        return _loaded_mean, (
            type(self),
            self.snapshot(),
            self.noise.deployment,  # type: ignore[attr-defined]
            self.noise.purpose,  # type: ignore[attr-defined]
        )

    def __copy__(self) -> Self:
        """Share everything, as any shallow copy does."""
        made = type(self).__new__(type(self))
        made.__dict__.update(self.__dict__)
        return made

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """Copy the parts, of which the stream refuses where it has samples."""
        made = type(self).__new__(type(self))
        memo[id(self)] = made
        made.__dict__.update(
            {name: copy.deepcopy(part, memo) for name, part in self.__dict__.items()}
        )

        return made


def _loaded_mean(
    cls: type[PrivateMean], snapshot: dict[str, Any], deployment: str, purpose: str
) -> PrivateMean:
    """Continue a pickled statistic with the key of the environment."""
    return cls.restore(snapshot, noise=noise_of_environment(deployment, purpose))
