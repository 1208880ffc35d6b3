"""Assessments: machines whose truth is known get the verdict that it asks for, and doubtful logs get none."""

import json
import re
from dataclasses import replace

import numpy as np
import pytest

from bftrainer.campaigns.assess import AssessPlan, MachinePrices, Thresholds, assessment_of
from bftrainer.campaigns.idle_time import KINDS, measure_idle_time, saturate_pool
from bftrainer.campaigns.studies import measure_grants
from bftrainer.errors import SettingsError
from bftrainer.model import NodeLog, ScalingCurve, TaskSpec
from bftrainer.report.ledger import PARTS
from tests.report.test_ledger import log_of

DAY_S, NS = 86_400, 1_000_000_000
MONDAY = 1_788_739_200  # 2026-09-07


OWN = (TaskSpec("J", 1, 16, 1e6, ScalingCurve.linear(1.0, 16), grow_cost_s=600.0, shrink_cost_s=2400.0),)
"""A task whose changes are dear."""
CHEAP = (TaskSpec("J", 1, 8, 1e6, ScalingCurve.linear(1.0, 8)),)
"""A task whose changes cost nothing."""


def machine(idle_for_s, busy_for_s, days=28, nodes=64, seed=0, always=0, lost_s=(0, 0)):
    """Log of a machine: `always` nodes stay idle, the others alternate; times are exponential around these means.

    All are idle in the time of which records are lost.
    """
    rng = np.random.default_rng(seed)
    spans = []
    for node in range(nodes):
        if node < always:
            spans.append((node, 0, days * DAY_S))
            continue
        at = rng.exponential(busy_for_s)
        while idle_for_s and at < days * DAY_S:
            end = at + max(1, rng.exponential(idle_for_s))
            spans.append((node, int(at), int(end)))
            at = int(end) + 1 + rng.exponential(busy_for_s)
    if lost_s[1]:
        parts = [(node, begin, min(end, lost_s[0] - 1)) for node, begin, end in spans]
        parts += [(node, max(begin, lost_s[1] + 1), end) for node, begin, end in spans]
        spans = [part for part in parts if part[1] < part[2]] + [(node, *lost_s) for node in range(nodes)]
    log = log_of(spans, days * DAY_S, nodes)
    shift = MONDAY * NS
    return replace(log, start_ns=shift, end_ns=log.end_ns + shift, time_ns=log.time_ns + shift)


def kind_of(found, name):
    """A kind's entry."""
    return next(kind for kind in found["kinds"] if kind["name"] == name)


def test_a_quarter_that_is_always_idle_is_worth_it():
    """16 of 64 nodes idle for four weeks: small models get nearly all, in every week alike; no grant matters."""
    found = assessment_of(AssessPlan(machine(0, 1e9, always=16)))
    assert found["verdict"] == "worth it"
    assert found["idle"]["share"] == pytest.approx(0.25)
    small = kind_of(found, "small")
    assert sum(small["ledger"].get(part, 0.0) for part in PARTS) == pytest.approx(1.0)
    assert 0.22 < small["useful_share"] < 0.25
    low, high = small["useful_node_hours_ci95"]
    assert low <= small["useful_node_hours"] <= high
    assert high - low < 0.01 * high
    assert found["recommended"]["kind"] in ("small", "medium", "large")
    assert found["grants"]["sentence"].startswith("Neither grant matters here: ")
    assert found["grants"]["chosen"]["gain_ci95"] == found["grants"]["notice"]["gain_ci95"] == [0.0, 0.0]
    assert json.loads(json.dumps(found, allow_nan=False)) == found


def test_a_full_machine_is_not_worth_it():
    """Nothing idle, and a thousandth idle: not worth it, and the reason is that."""
    for log in (machine(0, 1e9), machine(400, 400_000, seed=1)):
        found = assessment_of(AssessPlan(log))
        assert (found["verdict"], found["recommended"], found["worth_for"]) == ("not worth it", None, [])
        assert "of the machine is idle, less than the bar of 1.00 %" in found["sentence"]


@pytest.mark.long
def test_holes_too_short_are_not_worth_it():
    """A fifth of the machine is idle, in holes of ten seconds on average: no start pays, and the verdict says so."""
    found = assessment_of(AssessPlan(machine(10, 40, days=7, nodes=3)))
    assert found["idle"]["share"] == pytest.approx(0.2, abs=0.02)
    assert found["verdict"] == "not worth it"
    assert re.search("recover 0.0[0-9] % of the machine, less than 1.00 %: decisions left .* free", found["sentence"])


@pytest.mark.long
def test_holes_for_small_models_only():
    """Holes of ten minutes are enough for models that start in seconds, not for those that start in minutes."""
    found = assessment_of(AssessPlan(machine(600, 2400, days=14)))
    assert found["verdict"] == "only for some"
    assert found["worth_for"] == ["small"]
    assert "only for small models" in found["sentence"]


def test_many_small_tasks_are_tried():
    """Where single nodes come and go, one of many pays for each: medium models, a node each, pay."""
    found = assessment_of(AssessPlan(machine(1500, 13_000, days=8, nodes=60)))
    medium = kind_of(found, "medium")
    assert medium["settings"]["max_tasks"] > 1
    assert "medium" in found["worth_for"]


TRUSTED = {"trusted": ["a", "b"], "untrusted_s": 0.0}
LOST = {"lost_days": 1.5, "lacking_dates": ["2026-09-02"]}
CLUSTERS = {"notes": ["the log is of 2 clusters (a, b): nodes are named after them."]}


@pytest.mark.parametrize(
    ("days", "provenance", "said", "asked"),
    [
        (7, {"coverage": {"trusted": None, "reason": "jobs are too few"}}, "jobs are too few", "Export all jobs"),
        (7, {"coverage": TRUSTED | {"untrusted_s": DAY_S}}, "is not covered by the log", "Export all jobs"),
        (7, {"coverage": TRUSTED | {"missing_busy_share": 0.04}}, "busy node-time is missing", "Export all jobs"),
        (7, {"coverage": TRUSTED | LOST}, "1.5 days are missing (2026-09-02)", "Export all jobs"),
        (1, {"format": "watch"}, "1 day is too few", "Go on watching until there are four weeks"),
        (7, CLUSTERS, "2 clusters (a, b)", "Each cluster by itself: bftrainer assess with --cluster"),
    ],
)
def test_doubtful_logs_get_no_verdict(days, provenance, said, asked):
    """However much seems idle; what to do instead stands first among what to do."""
    log = replace(machine(3600, 3600, days=days, nodes=4), provenance=provenance)
    found = assessment_of(AssessPlan(log, CHEAP))
    assert (found["verdict"], found["recommended"]) == ("none", None)
    assert said in found["sentence"]
    assert found["next"][0].startswith(asked)


def test_missing_job_ids_are_told_in_the_verdict():
    """Worth it, but amber, where job ids are in no row; what to do about that stands first."""
    log = machine(7200, 21_600, days=8, nodes=8)
    logs = [replace(log, provenance={"coverage": TRUSTED | {"missing_ids_share": share}}) for share in (0.0, 0.05)]
    whole, found = (assessment_of(AssessPlan(one, CHEAP)) for one in logs)
    assert [(one["verdict"], one["colour"]) for one in (whole, found)] == [("worth it", "green"), ("worth it", "amber")]
    assert found["sentence"].startswith(
        "Worth it, with care as 5 % of the job ids are in no row, whose nodes look idle: "
    )
    assert found["next"][0].startswith("Which records are missing")


def test_weeks_that_differ_are_not_a_no():
    """Three of eight nodes idle in one week of four: not shown to be worth it, rather than not worth it."""
    found = assessment_of(AssessPlan(log_of([(node, 0, 7 * DAY_S) for node in range(3)], 28 * DAY_S, 8)))
    assert found["verdict"] == "not worth it"
    assert re.match("Not shown to be worth it, because [a-z]+ models recover 9", found["sentence"])
    assert "may be less than 1.00 %" in found["sentence"]
    assert found["next"][0].startswith("A longer log")


def test_outages_alone_are_not_worth_it():
    """Idle for eight hours of each week, all nodes at once: not counted, told in their own line, and amber."""
    spans = [(node, week * 7 * DAY_S, week * 7 * DAY_S + 8 * 3600) for node in range(16) for week in range(4)]
    log = log_of(spans, 28 * DAY_S, 16)
    found = assessment_of(AssessPlan(log))
    assert found["idle"]["mostly_empty"] == pytest.approx({"days": 4 / 3, "node_hours": 512.0, "share": 1.0})
    assert (found["verdict"], found["colour"]) == ("not worth it", "amber")
    assert found["sentence"].startswith("Not shown to be worth it, because only 0.00 % of the machine is idle while")
    said = r"100\.00 % of the idle time is not counted, as .*; such tasks would recover another [45][0-9]{2} node-hours"
    assert re.match(said, found["mostly_empty"])
    assert found["grants"] is None


def test_lost_days_do_not_count():
    """Three days without a job in a month whose holes are worth it: the headline is that of the other days, amber."""
    lost_s = (10 * DAY_S, 13 * DAY_S)
    kept = assessment_of(AssessPlan(machine(7200, 21_600, nodes=16), CHEAP))
    found = assessment_of(AssessPlan(machine(7200, 21_600, nodes=16, lost_s=lost_s), CHEAP))
    days = found["idle"]["mostly_empty"]["days"] - kept["idle"]["mostly_empty"]["days"]
    assert days == pytest.approx(3.0, abs=0.1)
    assert (kept["colour"], found["colour"]) == ("green", "amber")
    assert found["sentence"].startswith("Worth it, with care: ")
    now, before = kind_of(found, "own"), kind_of(kept, "own")
    assert now["useful_share"] == pytest.approx(25 / 28 * before["useful_share"], rel=0.08)
    assert now["mostly_empty_node_hours"] - before["mostly_empty_node_hours"] == pytest.approx(3 * 24 * 16, rel=0.1)
    assert now["useful_node_hours"] == pytest.approx(sum(now["blocks"]["node_s"]) / 3600)


def test_weekends_count_while_half_of_the_machine_is_busy():
    """Half of 16 nodes idle at weekends counts, and is green; with two more, always idle, weekends don't: amber."""
    weekends = [(node, (7 * week + 5) * DAY_S, (7 * week + 7) * DAY_S) for node in range(8) for week in range(4)]
    always = [(node, 0, 28 * DAY_S) for node in (14, 15)]
    half = assessment_of(AssessPlan(log_of(weekends, 28 * DAY_S, 16), CHEAP))
    more = assessment_of(AssessPlan(log_of([*weekends, *always], 28 * DAY_S, 16), CHEAP))
    assert (half["verdict"], half["colour"], half["mostly_empty"]) == ("worth it", "green", None)
    assert half["kinds"][0]["useful_share"] == pytest.approx(8 / 16 * 2 / 7, rel=0.02)
    assert (more["verdict"], more["colour"]) == ("worth it", "amber")
    assert more["kinds"][0]["useful_share"] == pytest.approx(2 / 16 * 5 / 7, rel=0.02)


def test_grants_are_measured():
    """Replays with each grant, compared day by day."""
    found = assessment_of(AssessPlan(machine(7200, 14_400, days=14, nodes=24), OWN))["grants"]
    low, high = found["chosen"]["gain_ci95"]
    assert 0 < low < found["chosen"]["gain"] < high
    said = r"Your tasks would do [\d.]+ % more .* if your scheduler lets the harvester choose"
    assert re.match(said, found["sentence"])


def test_weeks_below_zero_are_explained():
    """Tasks that lose more to departures than they do have a caveat that says in how many days."""
    dear = replace(OWN[0], grow_cost_s=30.0, shrink_cost_s=50_000.0)
    found = assessment_of(AssessPlan(machine(3600, 3600, days=8, nodes=8), (dear,)))
    below = sum(node_s < 0 for node_s in found["kinds"][0]["blocks"]["node_s"])
    assert below
    assert any(f"below 0 in {below} of 8 days" in text for text in found["caveats"])


DOWN, NAMELESS = "nothing tells when nodes were down", "the log names no nodes"


@pytest.mark.parametrize(
    ("provenance", "place", "said"),
    [
        ({"partitions": {"gpu": "n[0-3]", "cpu": "n[4-7]"}}, "caveats", "of all partitions, as if alike, GPUs too"),
        ({"notes": ["a node here is a midplane, of 512 of the machine's nodes."]}, "caveats", "are of such a node"),
        ({"notes": [DOWN]}, "next", "When nodes were down or drained (--downtimes"),
        # A log that names no nodes cannot take downtimes, and names are asked for first.
        ({"notes": [DOWN, NAMELESS]}, "next", "when nodes were down (--downtimes) cannot be"),
    ],
)
def test_what_a_log_lacks_is_said(provenance, place, said):
    """Nodes that differ, or stand for many, change what figures mean; what is not known of them is asked for."""
    log = replace(machine(0, 1e9, days=7, nodes=8, always=2), provenance=provenance)
    texts = [
        text for text in assessment_of(AssessPlan(log, CHEAP))[place] if place == "caveats" or "--downtimes" in text
    ]
    assert sum(said in text for text in texts) == 1
    assert place == "caveats" or len(texts) == 1


@pytest.mark.long
def test_a_short_log_gets_no_verdict():
    """Six days do not show a week; who thinks otherwise lowers the bound, and gets one from days."""
    log = machine(3600, 3600, days=6)
    assert assessment_of(AssessPlan(log))["verdict"] == "none"
    found = assessment_of(AssessPlan(log, thresholds=Thresholds(least_window_s=4 * DAY_S)))
    assert found["verdict"] != "none"
    assert kind_of(found, "small")["blocks"]["unit"] == "day"
    for said in ("6 days", "Days are more alike than weeks"):
        assert any(said in text for text in found["caveats"])


def test_a_price_decides():
    """Where energy costs more than a node-hour is worth nothing is worth it, and all else in the same log is."""
    log = machine(0, 1e9, always=16)
    dear = MachinePrices(
        price_node_hour=0.1, price_kwh=1.0, node_w=1000.0, idle_w=500.0, pue=1.2, carbon_gco2_per_kwh=300.0
    )
    found = assessment_of(AssessPlan(log, prices=dear, gpus_per_node=4))
    assert found["verdict"] == "not worth it"
    small = kind_of(found, "small")
    assert small["energy_kwh"] == pytest.approx(0.6 * small["used_node_s"] / 3600)
    assert small["emissions_kg"] == pytest.approx(0.3 * small["energy_kwh"])
    assert small["net_value"] == pytest.approx(0.1 * small["useful_node_hours"] - small["energy_kwh"])
    assert small["gpu_hours"] == 4 * small["useful_node_hours"]
    assert assessment_of(AssessPlan(log, prices=replace(dear, price_kwh=0.01)))["verdict"] == "worth it"


@pytest.mark.parametrize(
    ("prices", "said", "asked"),
    [
        (MachinePrices(), None, ("--price-node-hour", "--node-power")),
        (MachinePrices(node_w=900.0), None, ("--price-node-hour",)),
        (MachinePrices(price_node_hour=1.0), "--node-power and --price-kwh", ("--node-power",)),
        (MachinePrices(price_node_hour=1.0, node_w=500.0), "--price-kwh", ()),
        (MachinePrices(price_node_hour=1.0, price_kwh=0.2), "--node-power", ("--node-power",)),
    ],
)
def test_prices_that_are_missing_are_named_and_no_others(prices, said, asked):
    """A net value without energy says which price it lacks, and what to measure next leaves out what was given."""
    found = assessment_of(AssessPlan(machine(0, 1e9, days=8, nodes=4, always=1), CHEAP, prices=prices))
    caveats = [text for text in found["caveats"] if text.startswith("The net value is without energy")]
    assert caveats == ([] if said is None else [f"The net value is without energy, which takes {said}."])
    hints = " ".join(found["next"])
    assert [name for name in ("--price-node-hour", "--node-power") if f"({name})" in hints] == list(asked)


@pytest.mark.long
def test_the_interval_holds_the_truth():
    """Over twenty machines of one kind the weekly interval holds the mean of all in at least seventeen."""
    task = (TaskSpec("J", 1, 8, 1e7, ScalingCurve.linear(1.0, 8)),)
    kinds = [
        assessment_of(AssessPlan(machine(7200, 14_400, nodes=12, seed=seed), task))["kinds"][0] for seed in range(20)
    ]
    truth = np.mean([kind["useful_share"] for kind in kinds])
    held = [kind["useful_share_ci95"][0] <= truth <= kind["useful_share_ci95"][1] for kind in kinds]
    assert sum(held) >= 17


@pytest.mark.long
def test_offers_cost_what_they_withhold():
    """With --offer-after an hour, what is recovered falls, and the ledger says why."""
    log = machine(7200, 7200, days=8)
    all_of_it, late = (kind_of(assessment_of(AssessPlan(log, offer_after_s=s)), "small") for s in (0.0, 3600.0))
    assert late["useful_share"] < 0.7 * all_of_it["useful_share"]
    assert late["ledger"]["not_offered"] == pytest.approx(0.39, abs=0.05)  # 1 - exp(-1/2)


def test_idle_time_is_told_by_hour_and_partition():
    """Idle on Tuesdays from 6:00 to 7:00 UTC, and half an hour later on half the nodes, those of one partition."""
    spans = [(node, DAY_S + 6 * 3600, DAY_S + 7 * 3600 + 1800 * (node >= 2)) for node in range(4)]
    log = log_of(spans, 7 * DAY_S)
    shift, partitions = MONDAY * NS, {"gpu": "n[0-1]", "cpu": "n[2-3]"}
    log = replace(log, start_ns=shift, end_ns=log.end_ns + shift, time_ns=log.time_ns + shift)
    found = measure_idle_time(replace(log, provenance={"partitions": partitions}))
    hours = found["nodes_by_hour_of_week"]
    assert {hour: value for hour, value in enumerate(hours) if value} == {30: 4.0, 31: 1.0}
    assert {name: part["share"] * 168 for name, part in found["by_partition"].items()} == {"gpu": 1.0, "cpu": 1.5}


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_kinds_saturate(kind):
    """Enough tasks for the pool at every time and in all, of any size; none ends early for want of work."""
    for pool, node_s in ((10, 1e6), (4000, 1e11), (0, 0.0)):
        tasks, active = saturate_pool([kind.task(3600.0)], pool, node_s)
        assert active * kind.max_nodes >= pool
        assert len(tasks) <= 20_000
        assert sum(task.work / task.rates[kind.min_nodes] * kind.min_nodes for task in tasks) >= node_s
    assert kind.min_nodes == {"small": 1, "medium": 1, "large": 7}[kind.name]


def test_what_cannot_be_assessed_is_refused():
    """No tasks, tasks whose work is in epochs, and thresholds and prices out of range."""
    instant = NodeLog(("a",), 0, 0, *(np.empty(0, kind) for kind in (np.int64, np.int32, np.bool_)))
    for make, said in (
        (lambda: saturate_pool([], 10, 1.0), "got none"),
        (lambda: Thresholds(worth_share=0.0), "0 < worth share"),
        (lambda: Thresholds(worth_share=1.0), "worth share < 100 %"),
        (lambda: Thresholds(least_window_s=-1.0), "least window above 0 s"),
        (lambda: MachinePrices(pue=0.5), "--pue of 1 to"),
        (lambda: MachinePrices(node_w=-1.0), "--node-power of 0 to"),
        (lambda: MachinePrices(carbon_gco2_per_kwh=-1.0), "--carbon of 0 to"),
        (lambda: MachinePrices(price_kwh=-1.0), "--price-kwh of 0 to"),
        (lambda: MachinePrices(node_w=100.0, idle_w=200.0), "no less than --idle-power"),
        (lambda: AssessPlan(machine(0, 1e9, days=1), gpus_per_node=0), "--gpus-per-node of 1 to"),
        (lambda: AssessPlan(instant), "a log of some time"),
    ):
        with pytest.raises(SettingsError, match=f"Expected.* {said}"):
            make()


def test_a_grant_that_brings_little_is_not_advised():
    """Choosing costs 2.5 %, notice brings 0.2 %: the sentence begins with what an administrator asks."""
    named = {"useful_node_s": 700.0, "blocks": {"node_s": [100.0] * 7, "unit": "day"}}
    ways = {"chosen": 0.975, "notice": 1.002}
    replays = {"named": named} | {
        name: {"useful_node_s": 700.0 * factor, "blocks": {"node_s": [100.0 * factor] * 7, "unit": "day"}}
        for name, factor in ways.items()
    }
    found = measure_grants({"name": "small", "useful_node_s": 700.0}, replays)
    assert found["sentence"].startswith("Neither grant brings 1 % here: small models would do 2.5 % less")
