"""Every algorithm, theorem, figure and table of the five documents, with its command.

Print the table: python benchmarks/papers.py. Run every command too, with small sizes: python
benchmarks/papers.py --run
"""

from __future__ import annotations

import shlex
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

AGENTS = "simulate agents --mode paper --agents 15 --steps 300 --runs 2"
ROUNDS = "simulate rounds --mode paper --users 600 --sizes point:400 --runs 2"
BOUNDS = "theory rounds"
CENTRAL = "simulate rounds --mode paper --users 600 --sizes zipf:1,100 --runs 2 --epsilon 4"
SHARES = "simulate rounds --estimator category_shares --data shares:5,3,1,1 --users 600 --runs 2"
OWN_FILE = "stops.csv"
NONE = ""


@dataclass(frozen=True, slots=True)
class Item:
    """What a document has, and a command for it; without one, what is missing."""

    paper: str
    what: str
    command: str
    note: str = ""


def _colme() -> list[Item]:
    rows = [
        (
            "Lemmas 1-3 (noise), eqs. (20), (21)",
            "theory agents --mode paper --agents 15 --steps 300",
            "(21) corrected",
        ),
        ("PM-I; PM-II", f"{AGENTS} --counter pm2", ""),
        (
            "eq. (1): last, MoM, wMoM",
            f"{AGENTS} --weights windowed",
            "on a stream: run agents --weights",
        ),
        (
            "Algorithm 1, RR",
            f"{AGENTS} --schedule round_robin",
            "on a stream: run agents --schedule",
        ),
        (
            "Algorithm 1, rRR",
            f"{AGENTS} --schedule restricted_round_robin",
            "on a stream: run agents --schedule",
        ),
        (
            "Sch-Var-1, eqs. (6)-(8)",
            f"{AGENTS} --variance released",
            "on a stream: run agents --variance",
        ),
        ("Sch-Var-2, eq. (16)", f"{AGENTS} --variance from_releases", ""),
        ("eq. (19)", f"{AGENTS} --variance bayesian", "on a stream: run agents --variance"),
        *[
            (
                f"footnote 3, {prior} prior",
                f"{AGENTS} --variance {prior.lower()}",
                "on a stream: run agents --variance",
            )
            for prior in ("Jeffreys", "uniform")
        ],
        ("Propositions 1-3, Remark 3", "theory agents --mode paper --agents 15 --steps 300", ""),
        ("Theorem 1", "theory agents --mode paper --agents 15 --steps 300", "better_together_from"),
        *[(f"Fig. {n}", f"reproduce colme --figure {n} --runs 1", "") for n in (2, 3, 4)],
        (
            "consensus on a graph (their arXiv 2511.04702)",
            "theory agents --agents 60 --steps 300",
            "simulated: simulate agents --collaboration consensus",
        ),
        (
            "few partners, lost messages; consensus and message passing ([15])",
            "reproduce colme --figure partners --runs 1",
            "on a stream: run agents --partners, --collaboration consensus",
        ),
    ]

    return [Item("ColME", *row) for row in rows]


def _dame() -> list[Item]:
    rows = [
        ("Algorithm 1, as printed", f"{ROUNDS} --estimator dame --option literal=true", ""),
        ("Algorithm 1, corrected", f"{ROUNDS} --estimator dame", ""),
        ("Theorems 1, 2; eqs. (12)-(14); Table 1", BOUNDS, ""),
        ("Corollary 3; eq. (15); Table 2", f"{BOUNDS} --sizes two:1,100,0.5", "sizes 1 and m"),
        ("Fig. 1a", "reproduce dame --figure 1a", ""),
        ("Fig. 1b", "reproduce dame --figure 1b --runs 2", ""),
    ]

    return [Item("DAME", *row) for row in rows]


def _kent() -> list[Item]:
    vectors = f"{ROUNDS} --dimension 8"
    algorithms = [
        (
            "Algorithm 1",
            f"{vectors.replace('8', '2')} --estimator kent.cover --option radius=0.5 --data corner:0.9",
            "",
        ),
        ("Algorithms 2, 3, 10, 11", f"{ROUNDS} --estimator kent", ""),
        (
            "Algorithms 4, 12",
            f"{vectors} --estimator kent.linf --data corner:0.9",
            "corrected folds",
        ),
        ("Algorithms 5, 13", f"{vectors} --estimator kent.l2 --data sphere", ""),
        (
            "Algorithm 6",
            f"{vectors} --estimator kent.sparse_select --option sparsity=4 --data sparse:4,0.75",
            "",
        ),
        (
            "Algorithm 7",
            f"{vectors} --estimator kent.sparse_threshold --option sparsity=4 --data sparse:4,0.75",
            "",
        ),
        (
            "Algorithm 8",
            f"{ROUNDS} --estimator kent.density --option smoothness=1 --data trigonometric --theta 0.2",
            "",
        ),
        (
            "Algorithm 9",
            f"{ROUNDS} --estimator kent.mixture --components 2 --epsilon 4 --option constant=0.25 "
            "--data mixture:0.5=-0.5;0.5=0.5",
            "",
        ),
    ]

    rest = [
        (
            "Theorems 1, 6-11; Props. 3-5; Tables 1-6; T*",
            f"{BOUNDS} --dimension 40 --sparsity 30",
            "status of constants",
        ),
        ("Fig. 1", "reproduce kent --figure 1", ""),
        *[
            (f"Fig. {n}", f"reproduce kent --figure {n} --runs 2", "")
            for n in (2, 3, 5, 6, 7, 8, 9, 10, 11, 12)
        ],
        *[
            (
                f"Fig. 4 {panel} (real data)",
                f"reproduce kent --figure 4 --runs 2 --samples 12 --user officer --value {column} --file {OWN_FILE}",
                "on a file of one's own: the paper's data cannot be had",
            )
            for panel, column in (("left", "searched"), ("right", "race"))
        ],
        (
            "unary encoding of categories (Fig. 4, one item of a user)",
            f"{SHARES} --option votes=sue",
            "run rounds --categories: also oue, and subset selection, randomized response where they are better",
        ),
        (
            "item level of vectors, eq. (25) of Duchi",
            "reproduce kent --figure 2 --runs 2",
            "exact: its reports have one length, so that one item errs as a user's own mean does",
        ),
        (
            "Section 3.4, sub-Gaussian data",
            f"{ROUNDS} --estimator kent --data normal:0.2,0.5",
            "a remark: only a user's mean is cut",
        ),
        (
            "Appendix D, approximate privacy",
            f"{BOUNDS} --dimension 40",
            "Theorem 11, a lower bound; the appendix has no mechanism",
        ),
        (
            "Appendix B.2, Section 7 (functionals)",
            NONE,
            "discussion and open problems: no algorithm, no theorem",
        ),
    ]

    return [Item("Kent", *row) for row in [*algorithms, *rest]]


def _cummings() -> list[Item]:
    rows = [
        ("Lemma 5.2, eq. (6): ideal", f"{CENTRAL} --estimator cummings.ideal", ""),
        ("Algorithm 2", f"{CENTRAL} --estimator cummings.known_sizes", ""),
        ("Algorithms 3, 4", f"{CENTRAL} --estimator cummings.private_sizes", ""),
        ("Theorems 4.1, 5.1, D.1; Corollary 5.5; eq. (11)", BOUNDS, ""),
        (
            "App. G: f_Bin, Chernoff, f_D of a normal and an exponential law",
            BOUNDS,
            "f_D: between_users in --config",
        ),
        ("Appendix C", "reproduce cummings --figure c", ""),
        ("comparison of all", "reproduce cummings --runs 2", ""),
    ]

    return [Item("Cummings", *row) for row in rows]


def items() -> list[Item]:
    """List what the documents have."""
    return [*_colme(), *_dame(), *_kent(), *_cummings()]


def write_own_file(folder: Path) -> Path:
    """Make up the file of somebody's own: 60 officers with 15 stops each."""
    numbers = [(i, (i * i + i // 60) % 7) for i in range(900)]
    rows = [f"o{i % 60},{'abcd'[k % 4]},{'no' if k else 'yes'}" for i, k in numbers]
    path = folder / OWN_FILE
    path.write_text("\n".join(["officer,race,searched", *rows]) + "\n", encoding="utf-8")
    return path


def ran(command: str, folder: Path) -> str:
    """Run a command; give its last line if it failed, else nothing."""
    words = [
        sys.executable,
        "-m",
        "meanstream.pipelines.commands.main",
        *shlex.split(command.replace(";", r"\;")),
    ]
    words += ["--out", str(folder)] if command.startswith("reproduce") else []
    words = [str(write_own_file(folder)) if word == OWN_FILE else word for word in words]
    done = subprocess.run([*words, "--json"], capture_output=True, text=True, check=False)

    return "" if done.returncode == 0 else (done.stderr.strip().splitlines() or ["failed"])[-1]


def main() -> int:
    """Print the table; with `--run`, whether each command runs."""
    run = "--run" in sys.argv[1:]
    failed = 0
    known: dict[str, str] = {}
    print("| document | item | command | " + ("runs | " if run else "") + "note |")
    print("|---|---|---|" + ("---|" if run else "") + "---|")

    with tempfile.TemporaryDirectory() as folder:
        for item in items():
            if run and item.command and item.command not in known:
                known[item.command] = ran(item.command, Path(folder))
            said = known.get(item.command, "")
            failed += bool(said)
            column = f"{(said or 'yes') if item.command else '-'} | " if run else ""
            shown = f"`meanstream {item.command}`" if item.command else "-"
            print(f"| {item.paper} | {item.what} | {shown} | {column}{item.note} |", flush=True)

    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
