"""Pages of sweeps, forecasts and advice: what they say is what the files hold, whatever those are like."""

import itertools
import re

import pytest

from bftrainer.report.campaign_pages import Sweep, advice_page, bounds_page, forecast_page, sweep_page
from bftrainer.report.metrics import estimate
from tests.report.conftest import HOSTILE, check_page


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
    """The page as text, checked."""
    return check_page(sweep_page("sweep.toml", rows, varied, "schema = 1", **more).decode())


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
    """No interval, and a caveat; of equally good settings it says how many there are."""
    text = page_of(*rows_of({"max_tasks": [5, 10]}, lambda v, _: (v[0] / 100, 1)))
    assert "One seed of each setting" in text
    assert "95 %" not in text.partition("How it was made")[0]
    text = page_of(*rows_of({"max_tasks": [5, 10, 20]}, lambda *_: (0.0, 0)))
    assert "Best efficiency U: 0.00 %, with max_tasks 5. Other settings as good: 2." in text


def test_settings_are_ranked_by_the_sign_of_the_metric():
    """With preemptions first the setting with the fewest is the best; a point listed twice is no sample of two."""
    rows, varied = rows_of({"a": [1, 2, 3]}, lambda v, _: (v[0] / 10, 4 - v[0]))
    assert "Best preemptions: 1, with a 3." in page_of(rows, varied, metrics=("preemptions", "efficiency"))
    sweep = Sweep([*rows, rows[0] | {"point": 3}], varied, ())
    assert [setting.values for setting in sweep.ranked] == [(3,), (2,), (1,)]
    assert {setting.estimates["efficiency"].number for setting in sweep.settings} == {1}


def test_points_that_failed_are_listed():
    """In the headline and with their reasons; a mean is never of the seeds that are left."""
    rows, varied = rows_of(
        {"a": [1, 2], "b": [1, 2]}, lambda v, _: (sum(v) / 10, 1), seeds=2, failed=[((1, 2), 1), ((2, 2), 0)]
    )
    assert {setting.values for setting in Sweep(rows, varied, ()).ranked} == {(1, 1), (2, 1)}
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
    ],
)
def test_odd_sweeps_have_a_page(factors, failed):
    """No markup and no mark of direction of a name gets through."""
    text = page_of(*rows_of(factors, lambda v, _: (len(str(v)) / 1000, 1), failed=failed))
    assert ("No point has a value" in text) == (factors == {"a": [1]})


def forecast(times_s, **more):
    """JSON of a forecast with these completion times, as its command prints it."""
    from bftrainer.campaigns.studies import Forecast, ForecastPlan
    from bftrainer.runs import ReplayConfig

    start_ns = more.pop("start_ns", 1_764_838_800 * 10**9)  # Thursday 2025-12-04, 9:00
    plan = ForecastPlan(ReplayConfig(solver="dp"), 33 * 3600.0, 66 * 3600.0, len(times_s), start_ns)
    done = tuple(float(each <= plan.deadline_s) for each in times_s)
    return Forecast(plan, tuple(times_s), done, 0.5).to_dict() | more


def forecast_text(times_s, **more):
    """The page of such a forecast, checked."""
    return check_page(forecast_page(forecast(times_s, **more), "bftrainer forecast").decode())


def test_a_forecast_tells_dates():
    """By Friday 18:00 three of four are done: in the headline, and a row for each probability."""
    text = forecast_text([3600.0, 7200.0, 30 * 3600.0, 40 * 3600.0])
    assert "By Fri 2025-12-05 18:00 UTC: 75 % (30 to 95 %) of 4 stretches of the log have all tasks done." in text
    cells = re.findall(r"<tr><td>(\d+) %</td><td>(\w{3} 2025-12-\d\d \d\d:\d\d) UTC</td>", text)
    assert cells == [("25", "Thu 2025-12-04 10:15"), ("50", "Fri 2025-12-05 01:00"), ("75", "Fri 2025-12-05 22:30")]


def test_a_forecast_of_few_stretches_has_no_80_percent():
    """It says so, and calls the span what it is; of nine it has one."""
    few, enough = (forecast_text([3600.0 * each for each in range(1, number + 1)]) for number in (8, 9))
    note = (
        "8 stretches are too few for the 80 %, which take 9 or more: shown are the earliest completion and the latest."
    )
    for text, is_in_few in ((note, True), ("earliest to latest", True), ("80 % of completions", False)):
        assert (text in few, text in enough) == (is_in_few, not is_in_few)


def test_forecasts_of_many_stretches_and_without_a_start():
    """Shares are of all stretches; without a start it says so and names no date; it stays within half a megabyte."""
    text = forecast_text([60.0 * minutes for minutes in range(20_000)], start_ns=None)
    assert "By 33 h after the start: 10 % (9 to 10 %) of 20000 stretches" in text
    assert "no date of it was given" in text
    assert "UTC" not in text
    assert len(text) < 500_000


def test_tasks_that_never_complete():
    """All beyond the horizon: nothing is drawn as done, and words say so."""
    text = forecast_text([float("inf")] * 12, assumed_scaling="perfect")
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
    text = check_page(advice_page(found, "bftrainer advise").decode())
    assert f"It is {verdict}." in text
    for gain in found["gain"].values():
        assert f"<b>{100 * gain:+.2f} %</b>" in text
    assert f"<b>{found['advised']['forward_time_s']:g}</b>" in text
    rows = re.findall(r"<tr><td>([a-z, ]*)</td>", text)
    assert rows == {"same": ["given, best", ""]}.get(verdict, ["best", "given", ""])


def test_gains_from_nothing_have_no_share():
    """Of advice and of bounds."""
    text = advice_page(advice(gain={"training": None, "held_out": 0.25}), "x").decode()
    assert "from 0" in text
    names = {"named": 0.0, "chosen": 0.5, "changes free": None}
    rows = [
        {"name": name, "work": 3.0, "against_named": gain, "departure_share": 0.1, "rescale_share": 0.2}
        for name, gain in names.items()
    ]
    text = check_page(bounds_page({"bounds": rows, "time_s": 60.0, "notes": []}, "x").decode())
    assert "Chosen nodes: +50.0 %. Only changes free is a bound: -." in text
    assert "<td>named</td><td>3</td><td>+0.0 %</td><td>10.00 %</td><td>20.00 %</td>" in text
