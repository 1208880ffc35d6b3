"""Jobs whose nodes change while they run, in LSF; and counts of slots in place of their numbers, in TORQUE."""

from __future__ import annotations

import pytest

from bftrainer.schedulers.import_log import import_log
from bftrainer.schedulers.import_settings import ImportSettings
from tests.importing import idle_of

EIGHT, HOUR = 1788249600, 3600  # 2026-09-01 08:00 UTC
MORNING = {"start": str(EIGHT), "end": str(EIGHT + 4 * HOUR), "window": "asked"}


def resize(at_h, since_h, *hosts):
    """A record of a job that has these hosts until `at_h` hours after eight."""
    names = " ".join(f'"{host}"' for host in hosts)
    times = f"{EIGHT + at_h * HOUR} 51 0 {EIGHT} 501", f"1 {EIGHT + since_h * HOUR} {len(hosts)} {names}"
    return f'"JOB_RESIZE" "10.1" {times[0]} "ann" {times[1]} 1 "h2" 0 ""\n'


def finish(at_h, *hosts):
    """A record of the job's end, with its last hosts."""
    names = " ".join(f'"{host}"' for host in hosts)
    return (
        f'"JOB_FINISH" "10.1" {EIGHT + at_h * HOUR} 51 501 33882739 2 {EIGHT} 0 0 {EIGHT} "ann" "normal" "" "" "" '
        f'"login" "/home/ann" "" "" "" "f" 0 {len(hosts)} {names} 64 60.0 "a job" "run"\n'
    )


@pytest.mark.parametrize(
    ("lines", "idle"),
    [
        ((resize(1, 0, "h1", "h2"), finish(3, "h1")), {"h1": [(3, 4)], "h2": [(1, 4)]}),
        ((resize(1, 0, "h1"), finish(3, "h1", "h2")), {"h1": [(3, 4)], "h2": [(0, 1), (3, 4)]}),
        (
            (resize(1, 0, "h1", "h2"), resize(2, 1, "h2"), finish(3, "h1")),
            {"h1": [(1, 2), (3, 4)], "h2": [(2, 4)]},
        ),
        ((resize(1, 0, "h1", "h2"),), {"h1": [(1, 4)], "h2": [(1, 4)]}),
    ],
)
def test_resized_job_of_lsf_holds_what_it_had(tmp_path, lines, idle):
    """Each record of a change tells the hosts before it, the end the last ones."""
    (tmp_path / "lsb.acct").write_text("".join(lines))
    log = import_log("lsf", [tmp_path / "lsb.acct"], ImportSettings(nodes="h[1-2]", unseen="idle", **MORNING)).log
    assert idle_of(log, EIGHT, HOUR) == idle


@pytest.mark.parametrize(
    ("hosts", "told", "idle_h"),
    [
        ("c1/4+c2/4", "total_execution_slots=8", 0),
        ("c1/4+c2/4", "Resource_List.nodes=2:ppn=4", 0),
        ("c1/4+c2/2", "Resource_List.nodes=1:fast:ppn=4+1:ppn=2", 8),
        ("c1/3", "total_execution_slots=1", 12),
        ("c1/1+c1/2+c1/3", "total_execution_slots=3", 4),
        ("c1/2+c2/2", "", 24),
    ],
)
def test_counts_of_slots(tmp_path, hosts, told, idle_h):
    """`node/4` is four slots where the job's total says so, else slot 4."""
    line = f"09/01/2026 12:00:00;E;1.srv;start={EIGHT} exec_host={hosts} {told} end={EIGHT + 4 * HOUR}\n"
    (tmp_path / "20260901").write_text(line)
    settings = ImportSettings(unit="core", cores_per_node=4, **MORNING)
    assert import_log("pbs", [tmp_path / "20260901"], settings).quality.idle_node_s == idle_h * HOUR
