"""Imports of scheduler logs, and what each node log holds: from the files that `bftrainer import` writes.

A transition is a row of the node log. Its three integers are the time in ns since the Unix epoch, the number of the
node (its place in the log's metadata) and 1 if it becomes idle, else 0; digested like the hand-overs of `replays.py`.
"""

import hashlib
import json
import shlex
from contextlib import chdir
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tests.golden.running import run_command

LOGS = Path(__file__).parent / "logs"
FIGURES = (
    *("format", "records", "kept", "outside_window", "dropped", "duplicates", "bad", "unknown", "nodes_per_block"),
    *("nodes_seen", "nodes_unseen", "nodes_outside", "window_s", "zone", "busy_node_s", "by", "unit"),
    *("whole_idle_share", "overlap_factor", "over_capacity_share"),
)
"""Keys of the figures that stand beside a node log."""
COVERAGE = ("trusted", "untrusted_s", "untrusted_idle_node_s")

SHORT = "--start 2026-09-01T00:01:40Z --end 2026-09-01T00:06:40Z --window asked"
FOUR = f"{SHORT} --nodes 'n[1-4]' --unseen idle"
DOWN = f"{FOUR} --downtimes downtimes.csv"
DAY = "--start 2026-09-01 --end 2026-09-02 --window asked"
MORNING = "--start 2026-09-01T08:00Z --end 2026-09-01T12:00Z --window asked"
MAPPED = "--map start=began,end=Finished,nodes=hosts"
SACCT = f"slurm day/sacct-2026-09-01.txt {DAY} --tz Europe/Berlin"
PBS = f"pbs day/20260901 {DAY} --tz America/Chicago"
IMPORTS: dict[str, str] = {
    # One machine's history of five minutes in every form: most of them say the same of it.
    "alcf": f"alcf alcf/djc.csv {DOWN}",
    "alcf, racks": "alcf alcf-blue-gene-p/djc.csv --nodes ANL-R00-M0,ANL-R00-M1,ANL-R01-M0,ANL-R01-M1 --unseen idle "
    + SHORT,
    "counts": f"counts counts/counts.csv --nodes 4 {SHORT}",
    "counts, dates": f"counts counts-date-time-count/spot.txt --nodes 4 {SHORT}",
    "counts, JSON": f"counts counts-json/counts.json --nodes 4 {SHORT}",
    "flux": f"flux flux-eventlog/eventlog flux-eventlog/jobs.json --nodes 'n[1-4]' {SHORT}",
    "flux, lines": f"flux flux-lines-of-jobs/jobs.jsonl {FOUR}",
    "lsf": f"lsf lsf/lsb.acct {DOWN}",
    "pbs": f"pbs pbs/later pbs/earlier {DOWN}",
    "pbs, vnodes": f"pbs pbs-vnodes/20260901 {FOUR}",
    "slurm": f"slurm slurm/sacct.txt {DOWN} --tz UTC",
    "slurm, columns": f"slurm slurm-columns/sacct.txt {FOUR} --columns JobIDRaw,Start,End,NodeList,JobName",
    "slurm, events": f"slurm slurm-events/sacct.txt {FOUR} --downtimes slurm-events/events.txt --tz UTC",
    "slurm, reservations": "slurm slurm-reservations-json/sacct.txt --downtimes "
    f"slurm-reservations-json/reservations.json {FOUR}",
    "slurm, sacct -p": f"slurm slurm-sacct-p/sacct.txt {FOUR}",
    "slurm, sacct --json": f"slurm slurm-sacct-json/jobs.json {DOWN}",
    "slurm, squeue --json": "slurm slurm-squeue-json/squeue.json --nodes slurm-squeue-json/nodes.json --unseen idle "
    f"--downtimes slurm-squeue-json/down.json {SHORT}",
    "spot": f"spot spot/spot.csv {SHORT}",
    "swf": f"swf swf/log.swf {SHORT}",
    "swf, processors": f"swf swf/log.swf --procs-per-node 2 --max-overcommit 50% {SHORT}",
    "swf, node ids": f"swf swf-node-ids/ids.swf --nodes 'n[1-4]' --downtimes downtimes.csv {SHORT}",
    "table, alcf": f"table table-alcf/alcf.csv {FOUR} --preset alcf",
    "table, CSV": f"table table-csv/jobs.csv {DOWN} {MAPPED} --tz UTC",
    "table, fdata": f"table table-fdata/fdata.parquet --nodes 4 --unseen idle --preset fdata {SHORT}",
    "table, JSON lines": f"table table-json-lines/jobs.jsonl {DOWN} {MAPPED}",
    "table, kestrel": f"table table-kestrel/kestrel.csv --nodes 4 --unseen idle --preset kestrel {SHORT}",
    "table, lassen": f"table table-lassen/lassen.csv --nodes 4 --unseen idle --preset lassen {SHORT}",
    "table, Parquet": f"table table-parquet/jobs.parquet {DOWN} {MAPPED},job=job",
    "table, pm100": f"table table-pm100/pm100.parquet {FOUR} --preset pm100",
    "table, TSV": f"table table-tsv/jobs.tsv --map start=began,end=Finished,count=n --nodes 4 {SHORT}",
    "table, xdmod": f"table table-xdmod/sacct.txt {FOUR} --preset xdmod",
    "watch": f"watch watch/idle.watch {SHORT}",
    # Days of Slurm and PBS in which everything happens, with options that change what counts as idle.
    "day of slurm": f"{SACCT} --downtimes day/sacctmgr-events.txt",
    "day of slurm, partition": f"{SACCT} --partition batch --by partition --exclude-nodes cn-01-001",
    "day of slurm, idle only": f"{SACCT} --suspended idle --min-gap 2000 --min-hole 3600 --offer-after 600",
    "day of slurm, offered": f"{SACCT} --downtimes day/sacctmgr-events.txt --offer drain",
    "day of slurm, known": f"{SACCT} --nodes 'cn-01-[001-006],gpu1' --unseen idle",
    "spring": "slurm day/sacct-spring.txt --start 2026-03-28T11:00Z --end 2026-03-30 --tz Europe/Berlin --window asked",
    "autumn": "slurm day/sacct-autumn.txt --start 2026-10-24T10:00Z --end 2026-10-30 --tz Europe/Berlin --window asked",
    "both": "slurm day/sacct-spring.txt day/sacct-autumn.txt --start 2026-01-01 --tz Europe/Berlin --window asked",
    "day of pbs": f"{PBS} --nodes 'c[1-5]' --unseen idle --reserved-busy --suspended idle",
    "day of pbs, plain": f"{PBS} --nodes 'c[1-5]'",
    "day of pbs, cores": f"{PBS} --unit core --cores-per-node 16",
    # What the pages show.
    "page of all": "auto documented/import/sacct.txt --nodes 'n[1-4]' --downtimes documented/import/events.txt "
    f"{DAY} --tz Europe/Berlin",
    "page of counts": "counts documented/counts/counts.csv",
    "page of flux": "flux documented/flux/resource.eventlog documented/flux/jobs.json --nodes 'c[0-2]' --window asked",
    "page of lsf": f"lsf documented/lsf/lsb.acct {MORNING} --nodes 'h[1-3]' --unseen idle",
    "page of pbs": "pbs documented/pbs/20260901 --window asked",
    "page of slurm": f"slurm documented/slurm/sacct.txt {DAY} --nodes 'cn-[01-06],gpu1'",
    "page of slurm, JSON": "slurm documented/slurm/jobs.json --nodes documented/slurm/nodes.json --unseen idle " + DAY,
    "page of slurm, not trusted": "slurm documented/slurm/sacct.txt",
    "page of spot": "spot documented/spot/spot.csv --start 2026-09-01T12:00",
    "page of swf": "swf documented/swf/log.swf --window asked",
    "page of table": "table documented/table/jobs.csv --map start=began,end=ended,nodes=hosts,partition=queue "
    f"--tz Europe/Berlin {DAY} --nodes 'n[1-2]'",
    "page of watch": "watch documented/watch/idle.watch",
    # Shapes that sites met.
    "flux, new eventlog": "flux field/flux-new-eventlog/resource.eventlog field/flux-new-eventlog/jobs.json "
    f"--nodes 'c[0-2]' {MORNING}",
    "flux, remapped": f"flux field/flux-remapped/journal.json --nodes 'c[0-2]' {MORNING}",
    "sinfo": f"slurm field/inventory-suffix/sacct.txt --nodes field/inventory-suffix/sinfo.txt --unseen idle {MORNING}",
    "scontrol": "slurm field/inventory-suffix/sacct.txt --nodes field/inventory-suffix/scontrol.txt --unseen idle "
    + MORNING,
    "lsf, resized": f"lsf field/lsf-resize/lsb.acct {MORNING} --nodes 'h[1-2]' --unseen idle",
    "renamed nodes": "slurm field/nodes-renamed/sacct.txt.gz",
    "renamed nodes, asked": "slurm field/nodes-renamed/sacct.txt.gz --window asked --nodes 'cn[1-2]'",
    "bar in a name": f"slurm field/sacct-bar-middle/sacct.txt {MORNING} --tz UTC --max-bad 100%",
    "exports that overlap": f"slurm field/sacct-overlap-running/aug.txt field/sacct-overlap-running/sep.txt {MORNING}",
    "suspended too long": f"slurm field/sacct-suspended-past-limit/sacct.txt {MORNING}",
    "quoted lists": "table field/table-list-quotes/m100.csv --map start=start_time,end=end_time,nodes=nodes " + MORNING,
    "zero for none": "table field/table-raw-db-zero/jobs.csv --map start=time_start,end=time_end,nodes=nodelist "
    + MORNING,
    "slot counts": f"pbs field/torque-slot-counts/20260901 --unit core --cores-per-node 4 {MORNING}",
}
"""Words after `bftrainer import`, with files of `logs`; a log that is refused has its status kept."""

JSON_WINDOW = "--start 1747754400 --end 1762529800 --window asked"
XDMOD = "--start 2015-01-01 --end 2021-01-01 --tz UTC --window asked --preset xdmod"
WEEKEND = "--start 2016-12-30T00:03 --end 2017-01-01T23:55 --tz UTC --window asked --preset xdmod"
SHARED: dict[str, str] = {
    "phillips": f"table logs/sacct/phillips.log {WEEKEND}",
    "phillips, not trusted": "table logs/sacct/phillips.log --tz UTC --preset xdmod",
    "sacct": f"table logs/sacct/accounting-logs.log {XDMOD}",
    "sacct, arrays": f"table logs/sacct/accounting-logs-with-job-arrays.log {XDMOD}",
    "sacct, UTF-8": f"table logs/sacct/utf8-multibyte-chars.log {XDMOD}",
    "sacct, not ended": f"table logs/sacct/non-ended-job-state.log {XDMOD}",
    "sacct, unknown states": f"table logs/sacct/unknown-job-state.log {XDMOD}",
    "slurm-json, jobs": "slurm logs/slurm-json/slurm-jobs.json --start 1747754400 --end 1747754565 --window asked",
    "slurm-json, accounting": "slurm logs/slurm-json/slurmdb-job-completed.json "
    "logs/slurm-json/slurmdb-job-gpus-completed.json logs/slurm-json/slurmdb-job-gpus-multi-nodes.json "
    f"logs/slurm-json/slurmdb-job-pending.json logs/slurm-json/slurmdb-job-running.json {JSON_WINDOW}",
    "slurm-json, inventory": "slurm logs/slurm-json/slurm-jobs.json --nodes logs/slurm-json/slurm-nodes.json "
    "--downtimes logs/slurm-json/slurm-reservations.json --unseen idle --start 1747754400 --end 1747754565 "
    "--window asked",
    "torque, two days": "pbs logs/pbs/20171005.anon logs/pbs/20171006.anon --nodes 'c[1-18]' --unseen idle "
    "--window asked",
    "torque, cores": "pbs logs/pbs/20171005.anon logs/pbs/20171006.anon --nodes 'c[1-18]' --unseen idle "
    "--window asked --unit core --cores-per-node 16",
    "pbs, corner cases": "pbs logs/pbs/corner-cases.log --start 2009-12-21 --end 2020-12-08 --window asked",
    "lsf": "lsf logs/lsf/accounting-logs.log --start 2010-01-01 --end 2021-01-01 --window asked",
    "lsf, UTF-8": "lsf logs/lsf/utf8-multibyte-chars.log --start 2010-01-01 --end 2021-01-01 --window asked",
    "flux": "flux logs/flux/resource.eventlog.thing2 --window asked",
    "hpc2n": "swf logs/swf/hpc2n.swf",
    "hpc2n, two processors": "swf logs/swf/hpc2n.swf --procs-per-node 2",
    "theta": "swf logs/swf/theta_2022.swf",
    "intrepid": "alcf logs/alcf/intrepid_2014.csv --start 2014-01-01T00:00:32 --end 2014-01-24T17:45:54 --window asked",
    "intrepid, table": "table logs/alcf/intrepid_2014.csv --preset alcf --start 2014-01-01T00:00:32 "
    "--end 2014-01-24T17:45:54 --window asked",
    "spot, g4dn": "spot spot/g4dn-trace.csv",
    "spot, Google Cloud": "counts spot/gcp/a100x1-east1b.txt",
    "spot, 16 instances": "counts spot/skypilot/availability-16.json",
    "spot, 1 instance": "counts spot/skypilot/preemption-1.json",
    "spot, 4 instances": "counts spot/skypilot/preemption-4.json",
    "bad, no waits": "swf logs/bad/model-without-waits.swf",
    "bad, semicolons": "swf logs/bad/semicolon-separated.swf",
}
"""The same of the shared data."""
MINUTES_LONG = ("theta",)
"""A year of a machine, cut into 15 million transitions."""


def import_log(words: str, data: Path | None = None) -> dict[str, Any]:
    """Figures of an import, files of which are found in `data`; the status alone if the log is refused."""
    with TemporaryDirectory() as folder, chdir(data or LOGS):
        written = Path(folder, "idle.parquet")
        done = run_command("import", "--format", *shlex.split(words), "-o", written, "--json")
        if done.status:
            return {"status": done.status}
        quality = json.loads(done.out)
        coverage = quality["coverage"] or {}
        return {
            **{key: quality[key] for key in FIGURES if quality.get(key) is not None},
            "coverage": {key: coverage.get(key) for key in COVERAGE},
            **node_log(written),
        }


def node_log(path: Path) -> dict[str, Any]:
    """Nodes, window, transitions and idle time of a node log in Parquet."""
    table = pq.read_table(path)
    metadata = table.schema.metadata
    names = json.loads(metadata[b"bftrainer.nodes"])
    window = json.loads(metadata[b"bftrainer.window"])
    numbers = {name: number for number, name in enumerate(names)}
    seen = pc.dictionary_encode(table["node"]).combine_chunks()
    number_of_seen = np.array([numbers[name] for name in seen.dictionary.to_pylist()], dtype="<i8")
    time_ns = table["time"].cast(pa.timestamp("ns", "UTC")).cast(pa.int64()).to_numpy()
    rows = np.array([time_ns, number_of_seen[seen.indices.to_numpy()], table["idle"].to_numpy()], dtype="<i8")
    rows = np.ascontiguousarray(rows[:, np.lexsort(rows[::-1])].T)
    # Time left until the window's end: added where a node becomes idle, taken away where it becomes busy.
    left_ns = int(np.datetime64(window[1].removesuffix("Z"), "ns").astype(np.int64)) - rows[:, 0]
    signs = 2 * rows[:, 2] - 1
    idle_ns = int(signs @ (left_ns // 10**9)) * 10**9 + int(signs @ (left_ns % 10**9))
    return {
        "window": window,
        "nodes": len(names),
        "transitions": len(rows),
        "idle_node_h": idle_ns / 3.6e12,
        "sha256": hashlib.sha256(rows.tobytes()).hexdigest(),
    }
