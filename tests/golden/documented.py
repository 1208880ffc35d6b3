"""What README and docs have users type, smaller where that takes minutes there, and figures of what comes of it.

Steps of a scene run in order in one directory. The pages themselves run too: see `tests/docs/test_examples.py`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

ANY = object()
"""A value that is there and not null, whatever it is: judged elsewhere, or of this machine."""


@dataclass(frozen=True, slots=True)
class Step:
    """A command (what follows `bftrainer`, as a shell splits it) and what has to be so afterwards.

    `writes` are files or patterns of files that are not empty, `says` names and figures in the output, `facts` values
    in its JSON by path of keys and places, between slashes, `rows` sizes of tables (Parquet or CSV).
    """

    words: str
    writes: tuple[str, ...] = ()
    says: tuple[str, ...] = ()
    facts: Mapping[str, Any] = field(default_factory=dict)
    rows: Mapping[str, int] = field(default_factory=dict)


RUN = ("summary.json", "tasks.parquet", "decisions.parquet", "allocation.parquet", "step-logs.csv")
SPOT = "trace generate --model minutes --days 2 --seed 1"
SWEEP = """\
schema = 1
[base]
solver = "dp"
max_events = 100
baseline = false
[grid]
forward_time_s = [10, 120]
max_tasks = [5, 10]
"""
"""The sweep of the campaigns, `tfwd.toml`."""
SCENES: dict[str, tuple[Step, ...]] = {
    "replay": (
        Step("replay --dry-run", says=("512", "5,482", "17,972", "40")),
        Step("replay --solver dp --max-events 300 -o careful", tuple(f"careful/{name}" for name in RUN)),
        Step(
            "replay --solver dp --max-events 300 -Tfwd 300 -o eager --report eager.html --json",
            ("eager.html",),
            facts={"events": 300, "forward_time_s": 300.0, "solver": "dp", "efficiency": 0.9239804216638359},
            rows={"eager/tasks.parquet": 40, "eager/decisions.parquet": 300, "eager/step-logs.csv": 300},
        ),
        Step("audit careful"),
        Step("report careful", ("report.html",)),
        Step("report careful --brief -o brief.html", ("brief.html",)),
        Step("report careful eager -o both.html", ("both.html",)),
        Step("compare careful eager --metric efficiency --metric ledger.rescaling", says=("85.78 %", "92.40 %")),
        Step(
            "compare careful eager --json",
            facts={
                "runs/0/name": "careful",
                "settings/forward_time_s": [10.0, 300.0],
                "figures/efficiency/values": ANY,
            },
        ),
        Step("plot pool careful eager -o pool.svg --width column", ("pool.svg", "pool.csv")),
        Step("plot gantt careful -o gantt.png", ("gantt.png",)),
        Step("plot losses careful eager -o losses.pdf", ("losses.pdf",)),
        Step("plot setting careful eager --against forward_time_s --metric occupancy -o tfwd.png", ("tfwd.png",)),
        Step("plot --list", says=("occupancy", "ledger.useful")),
        Step("solvers", says=("dp", "cbc", "highs", "equal-share")),
        Step("solvers --json", facts={"0/name": "cbc", "0/exact": True, "1/name": "dp", "1/installed": True}),
    ),
    "tuned tasks": (
        Step(
            "replay --sample tuned --solver dp --objective scaling-efficiency -Tfwd 120 --no-baseline --idle-power 200 "
            "--carbon 380 --until 7200 -o tuned --json",
            ("tuned/power.parquet", "tuned/attempts.parquet"),
            facts={"events": 130, "energy_j": ANY, "emissions_gco2": ANY, "batch_sizes": ANY, "power_limits_w": ANY},
        ),
        Step("audit tuned"),
    ),
    "campaigns": (
        Step("sweep tfwd.toml --workers 1 --report tfwd.html", ("tfwd.html",), rows={"tfwd-sweep/sweep.parquet": 4}),
        Step(
            "sweep tfwd.toml --resume --json",
            facts={"3/options/max_tasks": 10, "3/error": None, "0/figures/work_done": 218428922.97919998},
        ),
        Step("plot paired tfwd-sweep --against forward_time_s -o paired.png", ("paired.png",)),
        Step("bound -Tfwd 120 --solver dp --until 7200 --json", facts={"bounds/0/name": "named", "notes": ANY}),
        Step("tasks generate --scenario hpo --model mobilenet --count 6 --work 3e7 -o trials.toml", ("trials.toml",)),
        Step(
            "forecast --deadline 8h --horizon 16h --stretches 4 --solver dp -bdfn trials.toml --workers 1 --json "
            "--report thursday.html",
            ("thursday.html",),
            facts={"stretches": 4, "deadline_s": 28800.0, "probability": 1.0, "completion_s/2": 1401.9516473000954},
        ),
        Step(
            "advise --solver dp --metric work_done --trials 3 --until 2021-02-10T06:00 --json",
            facts={"trials": 3, "metric": "work_done", "verdict": "better", "given/held_out": 335891999.4677438},
        ),
        Step(
            "reproduce bamboo --quick --workers 1 -o bamboo",
            ("bamboo/page.html", "bamboo/data.csv", "bamboo/summary.json"),
            says=("x 3.2", "x 1.63"),
        ),
    ),
    "imports": (
        Step(
            "import {logs}/documented/import/sacct.txt --nodes 'n[1-4]' --downtimes {logs}/documented/import/"
            "events.txt --start 2026-09-01 --end 2026-09-02 --tz Europe/Berlin --window asked -o idle.parquet --json",
            ("idle.quality.json",),
            facts={"records": 4, "kept": 3, "dropped/no nodes": 1, "idle_node_s": 144_000.0},
            rows={"idle.parquet": 11},
        ),
        Step("replay --node-log idle.parquet --solver dp --dry-run", says=("40",)),
        Step(
            "trace stats idle.parquet --figure holes.png --json",
            ("holes.png",),
            facts={"nodes": 3, "transitions": 11, "node_hours": 40.0},
        ),
        Step("trace edit idle.parquet --start 2026-09-01T12:00 --tz Europe/Berlin -o afternoon.parquet"),
        Step("trace edit afternoon.parquet --exclude-nodes n3 --min-hole 3600 -o some.parquet", ("some.parquet",)),
        Step("convert some.parquet -o some.csv", ("some.csv", "some.json")),
        Step("trace edit idle.parquet --end 2026-09-01T12:00 --tz Europe/Berlin -o morning.parquet"),
        Step("trace edit morning.parquet afternoon.parquet -o whole.parquet", rows={"whole.parquet": 11}),
        Step(
            "trace edit idle.parquet --anonymise pseudonyms.key -o shared.parquet",
            ("pseudonyms.key",),
            rows={"shared.parquet": 11},
        ),
        Step("convert idle.parquet idle.csv", ("idle.json",), rows={"idle.csv": 11}),
    ),
    "preemptible nodes": (
        Step(f"{SPOT} -o spot.parquet", rows={"spot.parquet": 2590}),
        Step("trace stats spot.parquet --json", facts={"kind": "spot", "preemptions": 1263, "transitions": 2590}),
        Step(
            "spot simulate --trace spot.parquet --price 0.31 --on-demand-price 1.2 -o out --figure out.svg --json",
            ("out.svg", "out/summary.json", "out/events.csv"),
            facts={"iterations_done": 6017, "preemptions": 1263, "cost": 549.4000833333333},
        ),
        Step(
            "spot sweep --days 0.5 --repeats 3 --preemption-scale 0.5,1 --jobs 1 -o levels",
            ("levels/summary.json",),
            says=("257.28", "148.69"),
            rows={"levels/sweep.csv": 2},
        ),
        Step("convert spot.parquet counts.csv --to counts", ("counts.csv",)),
        Step("trace generate --like spot.parquet --seed 2 -o like.parquet", ("like.parquet",)),
        Step("trace generate --nodes 64 --days 3 --seed 4 -o days.parquet", rows={"days.parquet": 2245}),
    ),
}

LONG = ("campaigns",)
