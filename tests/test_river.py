"""`meanstream.river`: river's own checks, mini-batches, pipelines, pickling without the key, the
engine's releases."""

from __future__ import annotations

import copy
import pickle
import sys
import types

import numpy as np
import pandas as pd
import pytest
from river import checks, evaluate, feature_extraction, linear_model, metrics, stats

from meanstream.operators.agents.agents import Agents
from meanstream.operators.agents.agents_settings import AgentsSettings
from meanstream.river import AgentMean, CollaborativeMean, PrivateMean, environment_noise

KEY = "9b1f6c04d2a85e73bb40c9f1e6a7250d"
ASK = {"lower": 0.0, "upper": 10.0, "epsilon": 1.0, "delta": 1e-6}


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MEANSTREAM_SECRET", KEY)
    # river's checks import it for data sets of several outputs, which are not asked for here.
    sklearn = types.ModuleType("sklearn")
    sklearn.datasets = types.ModuleType("sklearn.datasets")  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "sklearn", sklearn)
    monkeypatch.setitem(sys.modules, "sklearn.datasets", sklearn.datasets)  # type: ignore[attr-defined]


def _model(**more) -> CollaborativeMean:
    return CollaborativeMean(**ASK, name="test", **more)


def _samples(n: int, agents: int = 10) -> list[tuple[dict, float]]:
    rng = np.random.default_rng(1)
    return [
        ({"agent": f"a{i % agents}", "hour": float(i % 24)}, float(x))
        for i, x in enumerate(rng.normal(5, 1, n))
    ]


def _check_as_river_does(model) -> set[str]:
    """Run river's checks, each on a clone; give the names of those that fail."""
    failed = set()
    for check in checks.yield_checks(model.clone()):
        try:
            check(model.clone())
        except Exception:
            failed.add(check.__name__)
    return failed


def test_river_s_own_checks_of_an_estimator() -> None:
    checks.check_estimator(CollaborativeMean(**next(CollaborativeMean._unit_test_params())))


@pytest.mark.parametrize("kind", ["alone", "collaborative"])
def test_river_s_checks_of_an_aggregate_fail_where_those_of_its_own_mean_do(kind: str) -> None:
    """One more compares the numbers of two copies: each has noise of its own, as it must."""
    alone = PrivateMean(**ASK, noise=environment_noise("test"))
    how = alone if kind == "alone" else AgentMean(_model(collaboration="james_stein"))
    plain = _check_as_river_does(feature_extraction.TargetAgg(by="gallup", how=stats.Mean()))
    assert _check_as_river_does(feature_extraction.TargetAgg(by="gallup", how=how)) <= {
        *plain,
        "check_shuffle_features_no_impact",
    }


def test_releases_are_those_of_agents() -> None:
    """The engine hosts the same `Agents`: the same key, settings and samples give the same
    integers."""
    model, samples = _model(), _samples(300)
    for x, y in samples:
        model.learn_one(x, y)
    settings = AgentsSettings(**ASK, schedule="preferred:10", horizon=40, name="test")
    agents = Agents(settings, environment_noise("test"))
    agents.add_agents([f"a{i}" for i in range(10)])
    agents.update(np.arange(300) % 10, np.array([y for _, y in samples]), np.arange(300.0))
    assert model._agents.latest().total.tolist() == agents.latest().total.tolist()
    many = _model()
    many.learn_many(pd.DataFrame([x for x, _ in samples]), pd.Series([y for _, y in samples]))
    assert many._agents.latest().total.tolist() == agents.latest().total.tolist()


def test_predictions_are_functions_of_releases() -> None:
    """Samples that are in no release yet move what the agent itself sees, and no prediction."""
    model = _model()
    for x, y in _samples(1000):
        model.learn_one(x, y)
    x = {"agent": "a3"}
    predicted, own = model.predict_one(x), model.estimate_one(x)
    assert own["lower"] < own["value"] < own["upper"]
    assert model.predict_one({"agent": "new"}) == pytest.approx(5.0, abs=0.3)
    model.learn_one(x, 10.0)  # the 101st: the next release is at 150
    assert model.predict_one(x) == predicted
    assert model.estimate_one(x)["value"] > own["value"]


def test_a_pipeline_learns_from_private_means() -> None:
    model = (
        feature_extraction.TargetAgg(by="agent", how=AgentMean(_model()))
        | linear_model.LinearRegression()
    )
    found = evaluate.progressive_val_score(_samples(200), model, metrics.MAE())
    assert found.get() < 5.0
    assert evaluate.progressive_val_score(_samples(1000), _model(), metrics.MAE()).get() < 1.5


@pytest.mark.parametrize("kind", ["estimator", "statistic", "aggregate"])
def test_a_pickle_has_no_key_and_goes_on_as_the_original(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model: object
    if kind == "statistic":
        mean = PrivateMean(**ASK, noise=environment_noise("test"))
        model, learn, say = mean, lambda m, i: m.update(i % 7), lambda m: m.get()
    else:
        model = (
            _model()
            if kind == "estimator"
            else feature_extraction.TargetAgg("agent", AgentMean(_model()))
        )
        learn = lambda m, i: m.learn_one({"agent": f"a{i % 3}"}, i % 7)  # noqa: E731
        ask = (
            (lambda m, x: m.predict_one(x))
            if kind == "estimator"
            else (lambda m, x: m.transform_one(x))
        )
        say = lambda m: ask(m, {"agent": "a1"})  # noqa: E731
    for i in range(70):
        learn(model, i)
    saved = pickle.dumps(model)
    assert KEY.encode() not in saved
    assert bytes.fromhex(KEY) not in saved
    loaded = pickle.loads(saved)  # noqa: S301 - made above
    for i in range(70, 700):
        learn(model, i)
        learn(loaded, i)
    assert say(loaded) == say(model)
    monkeypatch.setenv("MEANSTREAM_SECRET", KEY[::-1])
    with pytest.raises(ValueError, match="key"):
        pickle.loads(saved)  # noqa: S301 - made above
    monkeypatch.delenv("MEANSTREAM_SECRET")
    with pytest.raises(ValueError, match="MEANSTREAM_SECRET"):
        pickle.loads(saved)  # noqa: S301 - made above


def test_a_copy_never_releases_samples_a_second_time() -> None:
    mean, model = PrivateMean(**ASK, noise=environment_noise("test")), _model()
    assert copy.deepcopy(mean)._stream.owner.tolist() != mean._stream.owner.tolist()
    mean.update(1.0)
    model.learn_one({"agent": "a"}, 1.0)
    for one in (mean, model):
        with pytest.raises(TypeError, match="has samples cannot be copied"):
            copy.deepcopy(one)
    assert isinstance(mean.clone(), PrivateMean)
    assert isinstance(mean, stats.base.Univariate)
