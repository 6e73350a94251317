"""Sentences on what a figure shows, computed from its run, so that no note can contradict it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

Panels = list[dict[str, Any]]


def finding_of(name: str, panels: Panels) -> str:
    """Say what the panels of a figure show, in sentences that follow a note; nothing for most.

    Parameters
    ----------
    name : str
        Authors and figure, as in `FINDINGS`.
    panels : list of dict
        As they are printed with `--json`.

    Examples
    --------
    >>> curves = [{"label": "known", "checkpoints": [9], "mse": [2.0], "stderr": [0.1]},
    ...           {"label": "released", "checkpoints": [9], "mse": [5.4], "stderr": [0.2]}]
    >>> finding_of("colme 3", [{"curves": curves}])
    ' After 9 steps, relative to known: released 2.70 (standard error 0.17).'
    """
    if name not in FINDINGS:
        return ""
    return "".join(f" {text[0].upper()}{text[1:]}" for text in FINDINGS[name](panels))


def _relative_to_first(panels: Panels) -> Iterator[str]:
    """Compare the last errors of the first panel's curves with that of its first."""
    first, *others = panels[0]["curves"]
    cells = []

    for curve in others:
        ratio = curve["mse"][-1] / first["mse"][-1]
        cell = f"{curve['label']} {ratio:.2f}"

        # The error of a ratio of independent numbers, to first order.
        if curve["stderr"] and first["stderr"]:
            parts = [one["stderr"][-1] / one["mse"][-1] for one in (first, curve)]
            cell += f" (standard error {ratio * (parts[0] ** 2 + parts[1] ** 2) ** 0.5:.2f})"
        cells.append(cell)

    last = first["checkpoints"][-1]
    yield f"After {last:,} steps, relative to {first['label']}: {', '.join(cells)}."


def _worst_and_its_type_1(panels: Panels) -> Iterator[str]:
    """Name the curve with the largest last error, and the type I errors of the second panel."""
    errors, members, *_ = panels

    worst = max(errors["curves"], key=lambda curve: curve["mse"][-1])
    rejected = [f"{curve['label']} {curve['type1'][-1]:.2f}" for curve in members["curves"]]
    yield (
        f"After {worst['checkpoints'][-1]:,} steps the largest error is that of {worst['label']}, "
        f"{worst['mse'][-1]:.2g}. Members of the class that are rejected by then: "
        f"{', '.join(rejected)}."
    )


def _forced_size(panels: Panels) -> Iterator[str]:
    """Say from which share on the forced size errs no more than ten times the rule's."""
    chosen, forced, *_ = panels[0]["curves"]
    rule = dict(zip(chosen["x"], chosen["y"], strict=True))

    shares = [
        share for share, y in zip(forced["x"], forced["y"], strict=True) if y > 10 * rule[share]
    ]
    if shares:
        yield (
            f"{forced['label']}: over ten times the error of {chosen['label']} up to share "
            f"{max(shares):.2f}."
        )


def _crossing(panels: Panels) -> Iterator[str]:
    """Say from which place on each user level errs less than the item level after it."""
    for panel in panels:
        curves = panel["curves"]
        for user, item in zip(curves[::2], curves[1::2], strict=True):
            better = [
                x
                for x, ours, bound in zip(user["x"], user["y"], item["y"], strict=True)
                if ours < bound
            ]
            where = f"at {panel['axis']} {', '.join(f'{x:,.0f}' for x in better)}"
            yield f"{user['label']} is below the item level {where if better else 'nowhere'}."


def _last_decade(panels: Panels) -> Iterator[str]:
    """Say by which factor the last curve of each panel falls between its last two places."""
    for panel in panels:
        curve = panel["curves"][-1]
        before, last = curve["x"][-2:]

        factor = curve["y"][-2] / curve["y"][-1]
        yield (
            f"{panel['title']}, {curve['label']}: from {before:.0e} to {last:.0e} {panel['axis']} "
            f"the error falls by {factor:.1f}."
        )


FINDINGS: dict[str, Callable[[Panels], Iterator[str]]] = {
    "colme 2": _worst_and_its_type_1,
    "colme 3": _relative_to_first,
    "colme partners": _relative_to_first,
    "dame 1b": _forced_size,
    "kent 3": _crossing,
    "kent 5": _last_decade,
}
"""By authors and figure."""
