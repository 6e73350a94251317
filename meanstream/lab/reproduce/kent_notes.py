"""What is to be known of each figure of Kent, Berrett and Yu, and how long it takes."""

from __future__ import annotations

from meanstream.lab.reproduce.kent_curves import CUT

MEASURED = "Reference values are measured by an own implementation, for this project."
SECONDS = {
    "1": 0.0,
    "2": 0.7,
    "3": 1.0,
    "5": 1.2,
    "6": 0.7,
    "7": 0.5,
    "8": 0.5,
    "9": 0.5,
    "10": 0.8,
    "11": 0.3,
    "12": 0.1,
}
"""Of one run of a figure, on one core."""
NOTES = {
    "1": "Boundaries where two rates are equal (Tables 2 and 3), with all constants 1.",
    "2": "One-hot votes, C as in Section A.2; l2 with the half-width of (34). " + MEASURED,
    "3": f"s = 4 and p = 0.75 are not the paper's, which gives none; users mark means beyond {CUT}. The item level is "
    "Duchi's l_inf report of each sample with the best threshold in hindsight: a bound on what it can reach.",
    "5": "The least error over 24 half-widths from 0.0005 to 0.15 (the paper: 300). "
    "Each point has 10 times --runs "
    "repetitions; where a wrong bin is rarer than that, the least is too small. From a million samples on the "
    "least half-width is too wide for epsilon 4: the last decade falls by 2, not by 10. "
    + MEASURED,
    "6": "Bars: two standard errors.",
    "7": "Reference values are for 200 users, at C = 0.5 (epsilon 0.5 and 1) and 0.25 (2 and 4). "
    + MEASURED,
    "8": "No reference values.",
    "9": f"500 users vote (1000 in all). They mark means beyond {CUT}: with (37) as printed none is marked.",
    "10": f"Users mark means beyond {CUT}.",
    "11": "Bars: one standard deviation over the runs. Users vote for the closest bin.",
    "12": "Bars: one standard deviation over the runs. Users vote for the closest bin.",
}
