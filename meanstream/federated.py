"""Private means across the sites of a federation, whichever framework connects them.

`FederatedSite` releases a noisy mean per round and keeps a ledger. `read_site_releases` checks
releases that came from others. `better_mean` gives a site its own better mean with an interval.
`meanstream.integrations.flower_release` connects them to Flower, and
`meanstream.integrations.nvflare_statistics` to NVIDIA FLARE.
"""

from __future__ import annotations

from meanstream.integrations.federated_answer import SiteEstimate, better_mean, read_site_releases
from meanstream.integrations.federated_site import FederatedSite, SiteRelease, SiteSettings

__all__ = [
    "FederatedSite",
    "SiteEstimate",
    "SiteRelease",
    "SiteSettings",
    "better_mean",
    "read_site_releases",
]
