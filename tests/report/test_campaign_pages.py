"""Pages of sweeps, forecasts and advice: what they say is what the files hold, whatever those are like."""

from __future__ import annotations

import itertools
import re
import xml.etree.ElementTree as ET

import pytest

from bftrainer.errors import SettingsError
from bftrainer.report.campaign_pages import advice_page, forecast_page, when_text
from bftrainer.report.drawing import axes_or_new
from bftrainer.report.intervals import estimate
from bftrainer.report.sweep_page import Sweep, check_metrics, short_label, sweep_map, sweep_page

HOSTILE = '<img src=x onerror="alert(1)">\u202e$a_$' + "x" * 300


def rows_of(factors, figures, seeds=1, failed=()):
    """Rows of a sweep's table: `figures` maps a point's values and its seed to its efficiency and its preemptions."""
    rows = []
    for values, seed in itertools.product(itertools.product(*factors.values()), range(seeds)):
        bad = (values, seed) in failed
        found = (None, None) if bad else figures(values, seed)
        row = {"point": len(rows), "run": f"runs/{len(rows)}", **dict(zip(factors, values, strict=True))}
        row |= {"seed": seed} if seeds > 1 else {}
        rows.append(row | {"error": "broke" if bad else None, "efficiency": found[0], "preemptions": found[1]})
    return rows, [*factors, *(["seed"] if seeds > 1 else [])]


def page_of(rows, varied, **more):
    """The page as text, after checking that its pictures are well-formed and that it needs nothing."""
    text = sweep_page("sweep.toml", rows, varied, "schema = 1", **more).decode()
    return checked(text)


def checked(text):
    """The page: it has no script and no outside request, and pictures that are well-formed, with ids of their own."""
    assert "<script" not in text
    assert not re.search(r'(src|(?<!xlink:)href)="(?!#)', text)
    for picture in re.findall(r"<svg.*?</svg>", text, re.DOTALL):
        ET.fromstring(picture.replace("<svg ", '<svg xmlns:xlink="http://www.w3.org/1999/xlink" ', 1))
    ids = re.findall(r'\bid="([^"]+)"', text)
    assert len(ids) == len(set(ids))
    return text


def test_the_best_setting_has_its_interval_over_seeds():
    """Its mean and Student's interval stand in the headline, and how many others lie within it."""
    noise = (0.0, 0.02, -0.02, 0.01)
    rows, varied = rows_of({"forward_time_s": [10, 60, 600]}, lambda v, s: (0.5 + v[0] / 1e4 + noise[s], v[0]), 4)
    found = estimate([0.56 + each for each in noise])
    low, high = (f"{100 * (found.mean + sign * found.half_width):.2f} %" for sign in (-1, 1))
    text = page_of(rows, varied)
    said = f"Best efficiency U: {100 * found.mean:.2f} % ({low} to {high}, 95 % over 4 seeds), with forward_time_s 600."
    assert said in text
    near = sum(abs(0.5 + each / 1e4 - 0.56) <= found.half_width for each in (10, 60))
    assert (f"Other settings within that interval: {near}." in text) == bool(near)
    assert "3 settings of forward_time_s" in text


def test_windows_are_repetitions():
    """No window is a best setting: figures are means over them, as over seeds."""
    windows = [f"{begin} to {begin + 100}" for begin in (0, 100, 200)]
    rows, varied = rows_of({"window": windows, "max_tasks": [5, 10]}, lambda v, _: (int(v[0][0]) / 10 + v[1] / 100, 1))
    text = page_of(rows, varied)
    assert "95 % over 3 windows), with max_tasks 10." in text
    assert "2 settings of max_tasks" in text
    assert "--paired compares settings window by window" in text
    assert "One seed of each" not in text
    assert "Not all settings have the same windows" in page_of(rows[:-1], varied)
    both, varied = rows_of({"window": windows, "max_tasks": [5, 10]}, lambda v, s: (s / 10 + v[1] / 100, 1), seeds=2)
    assert "95 % over 6 runs of different windows and seeds), with max_tasks 10." in page_of(both, varied)


def test_without_seeds_the_page_says_what_is_missing():
    """No interval, and a caveat."""
    text = page_of(*rows_of({"max_tasks": [5, 10]}, lambda v, _: (v[0] / 100, 1)))
    assert "One seed of each setting" in text
    assert "95 %" not in text.partition("How it was made")[0]


def test_settings_that_are_equally_good_are_told():
    """Where nothing makes a difference, no setting is said to be better than the others."""
    text = page_of(*rows_of({"max_tasks": [5, 10, 20]}, lambda *_: (0.0, 0)))
    assert "Best efficiency U: 0.00 %, with max_tasks 5. Other settings as good: 2." in text


def test_equal_points_are_no_repetitions():
    """A point that is listed twice has one run, and is no sample of two."""
    rows, varied = rows_of({"max_tasks": [5, 10]}, lambda v, _: (v[0] / 100, 1))
    found = Sweep([*rows, rows[0] | {"point": 2}], varied, ())
    assert [each.estimates["efficiency"].number for each in found.settings] == [1, 1]


def test_metrics_are_weighed_by_their_signs():
    """With preemptions first the setting with the fewest is the best."""
    rows, varied = rows_of({"a": [1, 2, 3]}, lambda v, _: (v[0] / 10, 4 - v[0]))
    assert Sweep(rows, varied, ("preemptions", "efficiency")).done[0].values == (3,)
    assert "Best preemptions: 1, with a 3." in page_of(rows, varied, metrics=("preemptions", "efficiency"))


@pytest.mark.parametrize(
    ("names", "said"),
    [
        (("happiness",), "Expected a metric to improve, got 'happiness'"),
        (("wall_s",), "got 'wall_s'"),
        (("work_done", "work_done"), "one metric or two different ones"),
        (("work_done", "rescales", "preemptions"), "one metric or two different ones"),
    ],
)
def test_bad_metrics(names, said):
    """One line says what was expected."""
    with pytest.raises(SettingsError, match=said):
        check_metrics(names)


@pytest.mark.parametrize("levels", [(2, 3), (2, 2, 2), (2, 3, 3, 5)])
def test_the_map_has_a_cell_for_each_pair_of_values(levels):
    """The two factors with most values go across and down; a cell has the mean over all others, as the caption says."""
    factors = {f"f{number}": list(range(count)) for number, count in enumerate(levels)}
    rows, varied = rows_of(factors, lambda v, _: (0.5 + sum(v) / 100, 1 + v[0]))
    found = Sweep(rows, varied, ())
    picture = sweep_map(found)
    ax = axes_or_new(None)
    picture.draw(ax)
    across, down = sorted(factors, key=lambda name: -len(factors[name]))[:2]
    cells = {}
    for row in rows:
        cells.setdefault((row[across], row[down]), []).append(100 * row["efficiency"])
    assert len(ax.patches) == len(cells)
    shown = sorted(float(text.get_text()) for text in ax.texts)
    assert shown == pytest.approx(sorted(sum(each) / len(each) for each in cells.values()), abs=0.051)
    assert ("Means over " in picture.reading) == (len(levels) > 2)


@pytest.mark.slow
def test_a_map_that_nobody_could_read_is_left_out():
    """Of 5,000 cells, and the page says so; of 30 it is there."""
    for count, drawn in ((500, False), (3, True)):
        factors = {"a": list(range(10)), "b": list(range(count))}
        text = page_of(*rows_of(factors, lambda v, _: (v[0] / 10, 1)))
        assert ("Where efficiency U is best" in text) == drawn
        assert ("There is no map" in text) != drawn


def test_points_that_failed_are_hatched_and_told():
    """In the map, in the headline and with their reasons; a mean is never of the seeds that are left."""
    rows, varied = rows_of(
        {"a": [1, 2], "b": [1, 2]}, lambda v, _: (sum(v) / 10, 1), seeds=2, failed=[((1, 2), 1), ((2, 2), 0)]
    )
    found = Sweep(rows, varied, ())
    assert {each.values for each in found.done} == {(1, 1), (2, 1)}
    picture = sweep_map(found)
    ax = axes_or_new(None)
    picture.draw(ax)
    assert sum(str(patch.get_hatch() or "") == "////" for patch in ax.patches) == 2
    text = page_of(rows, varied)
    assert "2 of 8 points failed." in text
    assert text.count("<td>broke</td>") == 2


@pytest.mark.long
@pytest.mark.parametrize(
    ("factors", "failed"),
    [
        pytest.param({}, [], id="nothing varies"),
        pytest.param({"a": [1]}, [((1,), 0)], id="all failed"),
        pytest.param({"objective": [HOSTILE, "b/" + "y" * 300, None, "\udcff"]}, [((HOSTILE,), 0)], id="hostile"),
        pytest.param({"a": list(range(60)), "b": list(range(30))}, [], id="many"),
    ],
)
def test_odd_sweeps_have_a_page(factors, failed):
    """No markup and no mark of direction of a name gets through."""
    text = page_of(*rows_of(factors, lambda v, _: (len(str(v)) / 1000, 1), failed=failed))
    assert "<img" not in text
    assert "\u202e" not in text
    assert ("No point has a value" in text) == (factors == {"a": [1]})


def forecast(times_s, **more):
    """JSON of a forecast with these completion times, as its command prints it."""
    from bftrainer.campaigns.forecast import Forecast, ForecastPlan
    from bftrainer.runs import ReplayConfig

    start_ns = more.pop("start_ns", 1_764_838_800 * 10**9)  # Thursday 2025-12-04, 9:00
    plan = ForecastPlan(ReplayConfig(solver="dp"), 33 * 3600.0, 66 * 3600.0, len(times_s), start_ns)
    done = tuple(float(each <= plan.deadline_s) for each in times_s)
    return Forecast(plan, tuple(times_s), done, 0.5).to_dict() | more


def test_a_forecast_tells_dates():
    """By Friday 18:00 three of four are done: in the headline, and a row for each probability."""
    text = checked(forecast_page(forecast([3600.0, 7200.0, 30 * 3600.0, 40 * 3600.0]), "bftrainer forecast").decode())
    assert "By Fri 2025-12-05 18:00 UTC: 75 % (30 to 95 %) of 4 stretches of the log have all tasks done." in text
    cells = re.findall(r"<tr><td>(\d+) %</td><td>(\w{3} 2025-12-\d\d \d\d:\d\d) UTC</td>", text)
    assert cells == [("25", "Thu 2025-12-04 10:15"), ("50", "Fri 2025-12-05 01:00"), ("75", "Fri 2025-12-05 22:30")]


def test_a_forecast_of_few_stretches_has_no_80_percent():
    """It says so, and calls the span what it is; of nine it has one."""
    few, enough = (
        checked(forecast_page(forecast([3600.0 * each for each in range(1, number + 1)]), "x").decode())
        for number in (8, 9)
    )
    note = (
        "8 stretches are too few for the 80 %, which take 9 or more: shown are the earliest completion and the latest."
    )
    assert note in few
    assert "earliest to latest" in few
    assert "too few" not in enough
    assert "80 % of completions" not in few
    assert "80 % of completions" in enough


def test_a_forecast_without_a_start_counts_hours():
    """It says so, and names no date."""
    text = checked(forecast_page(forecast([3600.0, 7200.0], start_ns=None), "x").decode())
    assert "By 33 h after the start: 100 %" in text
    assert "no date of it was given" in text
    assert "UTC" not in text


def test_a_forecast_of_many_stretches_can_be_shown():
    """Of 20,000 its shares are of all; it stays within half a megabyte."""
    text = checked(forecast_page(forecast([3600.0 * (1 + each / 400) for each in range(20_000)]), "x").decode())
    assert "By Fri 2025-12-05 18:00 UTC: 64 % (63 to 65 %) of 20000 stretches" in text
    assert len(text) < 500_000


def test_tasks_that_never_complete():
    """All beyond the horizon: nothing is drawn as done, and words say so."""
    text = checked(forecast_page(forecast([float("inf")] * 12, assumed_scaling="perfect"), "x").decode())
    assert ": 0 % (0 to 24 %) of 12" in text
    assert "None of them has within 2.75 d." in text
    assert text.count("beyond the horizon") >= 3
    assert "Rests on assumed scaling: perfect." in text


def advice(verdict="better", **more):
    """JSON of advice."""
    given = {"forward_time_s": 10.0, "max_tasks": 5, "objective": "as-given", "training": 2.0, "held_out": 4.0}
    best = {"forward_time_s": 120.0, "max_tasks": 20, "objective": "throughput", "training": 3.0, "held_out": 5.0}
    best |= {"held_out": 3.0} if verdict == "overfit" else {}
    best = given if verdict == "same" else best
    keys = ("forward_time_s", "max_tasks", "objective")
    tried = [{key: each[key] for key in (*keys, "training")} for each in ([given] if best is given else [given, best])]
    tried.append({"forward_time_s": 1.0, "max_tasks": 1, "objective": "as-given", "training": None})
    return {
        "metric": "work_done", "verdict": verdict, "sentence": f"It is {verdict}.", "split_s": 3600.0, "trials": 9,
        "advised": {key: (best if verdict == "better" else given)[key] for key in keys},
        "given": given, "best": best, "tried": tried, "assumed_scaling": None,
        "gain": {"training": best["training"] / 2 - 1, "held_out": best["held_out"] / 4 - 1},
    } | more  # fmt: skip


@pytest.mark.parametrize("verdict", ["better", "overfit", "same"])
def test_advice_tells_what_was_tried_and_what_it_gains(verdict):
    """The sentence, the settings that are advised, both gains, and a row for each setting with its marks."""
    found = advice(verdict)
    text = checked(advice_page(found, "bftrainer advise").decode())
    assert f"It is {verdict}." in text
    for gain in found["gain"].values():
        assert f"<b>{100 * gain:+.2f} %</b>" in text
    assert f"<b>{found['advised']['forward_time_s']:g}</b>" in text
    rows = re.findall(r"<tr><td>([a-z, ]*)</td>", text)
    assert rows == {"same": ["given, best", ""]}.get(verdict, ["best", "given", ""])


def test_gains_from_nothing_have_amounts():
    """A gain over 0 has no share."""
    found = advice() | {"gain": {"training": None, "held_out": 0.25}}
    found["given"] |= {"training": 0.0}
    text = checked(advice_page(found, "x").decode())
    assert "from 0" in text


def test_labels_have_room():
    """The end of a path and the beginning of all else, without marks of direction."""
    assert short_label("/a/" + "b" * 50 + "/log.csv").endswith("bb/log.csv")
    assert len(short_label("x" * 300)) == 24
    assert short_label("\u202ea") == "\\u202ea"
    assert (short_label(None), short_label(0.5), short_label(3)) == ("-", "0.5", "3")


def test_dates_are_of_the_calendar():
    """With their weekday, after a start with or without fractions of a second."""
    assert when_text("2025-12-04T09:00:00.123456789Z", 86_400.0) == "Fri 2025-12-05 09:00 UTC"
    assert when_text(None, 7200.0) == "2 h after the start"
    assert when_text("2025-12-04T09:00Z", None) == "beyond the horizon"
