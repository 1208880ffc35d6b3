"""What README and docs have users type, smaller where that takes minutes there, and facts of what comes of it.

Steps of a scene run in order in one directory; the first scenes need nothing but themselves.
"""

from __future__ import annotations

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
    status: int = 0


RUN = ("summary.json", "tasks.parquet", "decisions.parquet", "allocation.parquet", "step-logs.csv")
SPOT = "trace generate --model minutes --days 2 --seed 1"
FEW = "replay --max-events 50 --no-baseline"
DIGITS = "--job synth-images,convnet,adadelta --target 0.65"
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
        Step("compare careful eager --csv", says=("careful,efficiency",)),
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
    "own parts": (
        Step(f"{FEW} --objective own_parts:square_root --solver dp -o root --json", facts={"decisions_optimal": 50}),
        Step(f"{FEW} --objective priority:own_parts:square_root --solver dp -o mine --json", facts={"events": 50}),
        Step(
            f"{FEW} --objective own_parts:half --solver highs -o fair --json", facts={"solver": "highs", "events": 50}
        ),
        Step(f"{FEW} --objective own_parts:half --solver dp -o unfair", status=2),
        Step(f"{FEW} --objective quota:group/AlexNett=16 -o typo", status=2),
        Step(f"{FEW} --sample tuned --solver dp --policy own_parts:mine -o chosen --json", facts={"attempts": ANY}),
        Step(
            "replay --sample tuned --solver highs --objective scaling-efficiency -Tfwd 120 --no-baseline --power-cap "
            "cap.csv --power-options pareto --output-dir capped --max-events 60 --json",
            ("capped/power.parquet",),
            facts={"events": 60, "settings/power_cap": "cap.csv"},
        ),
        Step("audit capped"),
        Step("replay --sample tuned --solver highs --power-cap 5kW --idle-power 200", status=2),
        Step(f"zeus simulate {DIGITS} --policy own_parts:mine --recurrences 5 --json", facts={"partial": False}),
        Step(f"zeus compare {DIGITS} --seeds 2 --recurrences 5 --policy zeus --policy own_parts:mine --json"),
    ),
    "settings": (
        Step(f"{FEW} --scaling learned -Tfwd 120 --solver dp -o learned", ("learned/beliefs.parquet",)),
        Step("audit learned"),
        Step("replay --solver dp --seed 7", status=2),
        Step(
            "replay --solver dp -maxJ 2 --until 2021-02-10T02:00 --output-dir two --no-baseline --json",
            facts={"max_tasks": 2, "settings/until_s": 7200.0, "end_reason": "until"},
        ),
        Step(
            "replay --tasks own.toml --solver dp --until 3600 --no-baseline --name own", ("own-itrOut/tasks.parquet",)
        ),
        Step("replay --tasks typo.toml --dry-run", status=2),
        Step("compare learned two", says=("learned", "two")),
        Step(
            "trace generate --model minutes --preemption-scale 2 --days 1 --seed 1 -o twice.parquet", ("twice.parquet",)
        ),
        Step("spot simulate --trace twice.parquet --profile profile.toml --depth 8 --json", facts={"nodes": 41}),
        Step("convert twice.parquet twice.csv", ("twice.csv", "twice.json")),
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
    "tasks": (
        Step("tasks generate --scenario hpo --model resnet18 --count 100 --interval 60 --seed 1 -o trials.toml"),
        Step("tasks generate --scenario nas --count 40 --max-nodes 32 --start 2021-02-10 -o mix.toml", ("mix.toml",)),
        Step("replay --tasks mix.toml --solver dp --max-events 200 --no-baseline --name mix", ("mix-itrOut/*.json",)),
        Step("convert mix.toml mix-Jbnd.pkl", ("mix-Jbnd.pkl", "mix-JNPs.pkl")),
        Step("convert mix-Jbnd.pkl back.toml", ("back.toml",), says=("40",)),
        Step("replay --tasks back.toml --solver dp --dry-run", says=("40",)),
        Step(
            "tasks generate --scenario nas --count 5 --checkpoint-s 30 --restart-s 60 -o saving.toml", ("saving.toml",)
        ),
        Step("tasks fit throughput.csv", says=("nodes = [0, 1, 2, 4, 8]", "2810.5")),
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
        Step("convert some.parquet -o legacy.pkl", ("legacy.pkl",)),
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
    "assessment": (
        Step("trace generate --nodes 32 --days 2 --seed 4 -o days.parquet", ("days.parquet",)),
        Step(
            "assess days.parquet --price-node-hour 0.4 --price-kwh 0.25 --node-power 900 --idle-power 300 --pue 1.3 "
            "--carbon 350 --gpus-per-node 4 --offer-after 600 -o priced --json",
            ("priced/page.html", "priced/brief.pdf", "priced/summary.json"),
        ),
    ),
    "recurring jobs": (
        Step(f"zeus traces {DIGITS} --eta 1", says=("8 16 32 64 128 256 512", "63,074")),
        Step(
            "zeus simulate --recurrences 20 --seed 1 --output history.parquet --json",
            ("history.parquet",),
            facts={"partial": False, "simulations/0/recurrences": 20, "simulations/0/seed": 1},
        ),
        Step(f"zeus compare {DIGITS} --seeds 3 --recurrences 10 --json", facts={"seeds": 3, "comparisons": ANY}),
        Step("zeus groups --dataset synth-images --json", facts={"seeds": 1, "seed": 123456}),
    ),
    "watch": (
        Step(r"watch command --once --json -- printf 'n[1-3] idle\nn4 drain\nn5 job\n'", facts={"nodes": 5, "idle": 3}),
        Step("watch slurm --once --json", facts={"nodes": 3, "idle": 1, "states/job/names": "n2"}),
        Step("watch slurm -o idle.parquet --every 1s --for 2s", ("idle.parquet", "idle.watch")),
        Step("import --format watch idle.watch -o again.parquet --json", facts={"nodes": 3, "format": "watch"}),
    ),
    "master": (
        Step(
            "master run line.toml --beta inf --quiet --pause-after 1 --json",
            facts={"running": False, "plan/recurrences": 2, "plan/batch_sizes": [10, 20]},
        ),
        Step("master status {logdir}", says=("line,slope,sgd", "1 of 2")),
        Step("master run --resume {logdir} --quiet --json", ("logs/*/journal.jsonl",), facts={"running": False}),
    ),
    "server": (
        Step("bso jobs --server {server} --json", facts={"0/spec/job_id": "t-1", "1/spec/job_id": "t-2"}),
        Step("bso jobs t-1 --server {server} --json", facts={"observations": 10}),
        Step("bso jobs t-1 -o trials.csv --server {server}", rows={"trials.csv": 10}),
        Step("bso jobs t-1 --void 9 --reason 'the meter stood still' --server {server}"),
        Step("bso jobs t-1 --delete --yes --server {server}"),
        Step("bso jobs --server {server} --json", facts={"0/spec/job_id": "t-2"}),
        Step("bso token add alice --role trainer --days 90 --token-file team", ("team",)),
        Step("bso token list --token-file team", says=("alice", "trainer")),
        Step("bso token revoke alice --token-file team", says=("alice",)),
        Step("bso jobs --import sqlite:///zeus.db --database sqlite:///bso.db", ("bso.db",), says=("0",)),
    ),
    "serving": (Step("bso serve --port {port} --database sqlite:///served.db", ("served.db",)),),
    "first job": (
        Step("bso quickstart --runs 2 --json", facts={"default": 16, "batch_sizes/0/batch_size": 8, "chosen": ANY}),
    ),
    "harvest": (
        Step("harvest run live.toml --max-nodes 1 -o mine --for 3s", ("mine/summary.json",), says=("0 of 1",)),
        Step("harvest status mine --json", facts={"tasks/0/task": "line", "held": 0}),
        Step("audit mine"),
        Step("replay --from-harvest mine --no-baseline -o predicted", ("predicted/summary.json",)),
    ),
    "harvest that runs": (
        Step("harvest add mine more.toml"),
        Step("harvest stop --drain mine"),
        Step("harvest stop mine"),
    ),
    "harvest sample": (Step("harvest run --sample", ("harvest/summary.json", "harvest/page.html"), says=("3 of 3",)),),
}

LONG = ("assessment", "campaigns", "first job", "harvest", "harvest that runs")
SLOW = ("harvest sample",)
