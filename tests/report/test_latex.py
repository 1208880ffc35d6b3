"""Comparisons as tables for LaTeX: units, digits, intervals, and names that are no commands."""

from __future__ import annotations

import re

from bftrainer.report.side_by_side import latex_table


def run(*, occupancy=0.5, assumed=None, versions=None, **settings):
    """A summary of few figures."""
    return {
        "schema": 1,
        "partial": False,
        "settings": {"seed": 0, "max_tasks": 10} | settings,
        "inputs": {},
        "versions": versions or {"bftrainer": "1"},
        "occupancy": occupancy,
        "makespan_s": 93456.0,
        "tasks_completed": 5039,
        "work_done": 17308566170.0,
        "solve_s_median": 0.1,
        "assumed_scaling": assumed,
    }


def rows(table):
    """Cells of the rows, by the first."""
    found = [line.removesuffix(r" \\").split(" & ") for line in table.splitlines() if line.endswith(r"\\")]
    return {label: cells for label, *cells in found}


def test_a_row_has_one_unit_and_four_digits():
    """Shares are per cent, seconds hours, large numbers have a power of ten, counts are whole; no wall-clock time."""
    assert rows(latex_table(["a"], [run(occupancy=0.123456)])) == {
        "": ["a"],
        r"occupancy (\%)": ["$12.35$"],
        "work done ($10^{9}$)": ["$17.31$"],
        "tasks completed": ["$5{,}039$"],
        "makespan (h)": ["$25.96$"],
    }


def test_runs_of_several_seeds_are_one_column():
    """Their mean has as many places as the interval, which has two digits: of 0.6, 0.7 and 0.8 it is 24.84 %."""
    some = [run(seed=seed, occupancy=0.5 + seed / 10) for seed in (1, 2, 3)]
    table = latex_table(["a", "b", "c", "d"], [*some, run(max_tasks=3)])
    assert rows(table)[""] == ["d", "3 seeds"]
    assert rows(table)["max tasks"] == ["3", "10"]
    assert rows(table)[r"occupancy (\%)"] == ["$50.00$", r"$70 \pm 25$"]
    assert "95~" in table
    assert "seed" not in rows(table)


def test_generated_logs_of_several_seeds_are_one():
    """Beside another log, none of theirs is named as if it were that of all."""
    logs = [f"seed-{seed}-0123abcd.parquet" for seed in (1, 2)] + ["real.parquet"]
    some = [run() | {"inputs": {"node_log": [{"path": log, "sha256": log * 2}]}} for log in logs]
    assert rows(latex_table("abc", some))["node log"] == ["generated 0123abcd", "real.parquet (real.par)"]


def test_the_same_run_twice_says_nothing_about_spread():
    """It stands in two columns, without an interval."""
    assert rows(latex_table(["a", "b"], [run(), run()]))[r"occupancy (\%)"] == ["$50.00$", "$50.00$"]


def test_small_figures_beside_large_ones_are_not_zero():
    """They have a power of ten of their own."""
    both = [run(occupancy=0.9), run(occupancy=0.0000012, max_tasks=3)]
    assert rows(latex_table("ab", both))[r"occupancy (\%)"] == ["$90.00$", r"$1.20 \times 10^{-4}$"]


def test_chosen_figures():
    """Those asked for, in that order, wall-clock times too; where a run has none, there is a dash."""
    other = run(max_tasks=3) | {"solve_s_median": None}
    found = rows(latex_table("ab", [run(), other], ["solve_s_median", "occupancy"]))
    assert list(found)[2:] == ["decision time, median (ms)", r"occupancy (\%)"]
    assert found["decision time, median (ms)"] == ["$100.0$", "--"]


def test_names_are_no_commands():
    """Whatever a run is called, LaTeX sees text."""
    table = latex_table([r"50%_\input{x} & $^~#<>"], [run()])
    head = next(line for line in table.splitlines() if line.startswith(" & "))
    text = r"50\%\_\textbackslash{}input\{x\} \& \$\textasciicircum{}\textasciitilde{}\#\textless{}\textgreater{}"
    assert head == rf" & {text} \\"


def test_assumptions_are_marked():
    """Figures that rest on an assumption have a star, which is explained; others have none."""
    table = latex_table("ab", [run(assumed={"note": "linear, 100 %", "figures": ["occupancy"]}), run(max_tasks=3)])
    assert rows(table)[r"occupancy (\%)"] == ["$50.00$$^{*}$", "$50.00$"]
    assert "*" not in rows(table)["makespan (h)"][0]
    assert re.search(r"\$\^\{\*\}\$ assumed scaling: linear, 100 \\%\.\\par\}$", table)
