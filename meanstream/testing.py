"""Checks for estimators and collaborations of your own.

Those that Meanstream's own tests run on its registries.

Examples
--------
>>> from meanstream.operators.estimators.one_shot import OneShot
>>> class Mine(OneShot):
...     name = "mine"
>>> check_estimator(Mine)
"""

from __future__ import annotations

from meanstream.lab.evidence.collaboration_checks import check_collaboration
from meanstream.lab.evidence.estimator_checks import check_estimator

__all__ = ["check_collaboration", "check_estimator"]
