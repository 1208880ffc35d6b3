"""What is unusable, in every format: records change nothing and are counted, logs and settings refused in one line."""

from __future__ import annotations

import pytest

from bftrainer.errors import InputError, LogError
from bftrainer.schedulers.formats.slurm import XDMOD_COLUMNS
from tests.importing import import_text, read_text
from tests.schedulers.test_accounting import END, START, entry, finish
from tests.schedulers.test_import_log import CLUSTERS, GPUS, JOBS, ONE, WINDOW, rows
from tests.schedulers.test_import_log import HEADER as SHORT
from tests.schedulers.test_node_states import COUNTS, DATED, DAY, SAMPLED, journal, poll, session
from tests.schedulers.test_slurm import COLUMNS, HEADER
from tests.schedulers.test_tables import HEADER_SWF, MAP, NOON, SPAN, line

OWN = {"table": {"map": MAP}, "slurm": WINDOW}
"""Settings of a format that a row of the tables does not change."""
GOOD = {
    "slurm": f"{HEADER}\n1|?|100|200|1|n1|x\n\n",
    "table": f'from,to,on\n{SPAN},"n1,\nn2"\n\n',  # a row may go over lines
    "swf": HEADER_SWF + line(),
    "pbs": START + END,
    "lsf": finish(),
}
"""A log of one job."""
DROPPED = {
    "slurm": [
        # Steps and jobs that never held a node are not bad.
        *((f"{step}|COMPLETED|100|200|1|n1|x\n", "job step", "") for step in ("123.batch", "123_4.0", "123+1.0")),
        ("123|CANCELLED by 7|None|200|0|None assigned|x\n", "no nodes", ""),
        ("123|CANCELLED by 7|100|200|0||x\n", "no nodes", ""),
        ("123|PENDING|Unknown|200|1|n1|x\n", "never started", ""),
        (f"123|PENDING|0|{10**9}|1|n1|x\n", "never started", ""),
        ("123|FAILED|200|200|1|n1|x\n", "zero length", ""),
        ("123|COMPLETED|200|100|1|n1|x\n", "end before start", ""),
        ("123|COMPLETED|2026-02-30T00:00:00|200|1|n1|x\n", "impossible time", "times .*, got '2026-02-30T00:00:00'"),
        ("123|RUNNING|100|soon|1|n1|x\n", "impossible time", "times"),
        ("123|COMPLETED|100|200|n1|x\n", "wrong number of columns", "7 columns, got 6"),
        ("123|COMPLETED|100|200|n1|n1|x\n", "impossible number of nodes", "a number of nodes, got 'n1'"),
        ("123|COMPLETED|100|200|1|n[1-999999999]|x\n", "unreadable node list", "at most"),
        ("123|COMPLETED|100|200|1|n1]|x\n", "unreadable node list", "a list"),
        ("123|COMPLETED|100|200|1|2026-09-01T11:05:00|x\n", "unreadable node list", "names of nodes"),
        ("2|FAILED|100|2", "last line cut off", "7 columns"),
        # Cells are shifted by bars, of which it is unknown to which of two names they belong, or of no name.
        ("JobID|JobName|Start|End|NodeList|Comment\n1|a|b|1|2|n1|c\n", "wrong number of columns", "6 columns, got 7"),
        ("JobID|Start|End|NodeList|NNodes\n1|100|200|n1|1|1\n", "wrong number of columns", "5 columns, got 6"),
        ("JobID|Submit|Start|End|NodeList\n1|x|100|200|n1\n", "impossible time", "times .*, got 'x'"),
    ],
    "table": [
        (",,n1\n", "never started", ""),
        (f"0,{NOON},n1\n", "never started", ""),
        (f"{SPAN},\n", "no nodes", ""),
        (f"{NOON},{NOON},n1\n", "zero length", ""),
        (f"{NOON + 1},{NOON},n1\n", "end before start", ""),
        ("noon,,n1\n", "impossible time", "times"),
        (f"{NOON},-5,n1\n", "impossible time", "times"),
        (f"{NOON},,n[1-\n", "unreadable node list", "a list"),
        (f"{NOON},,[]\n", "unreadable node list", "names of nodes"),
        # Of a list of which one range is malformed no node becomes one of the machine.
        (f'{NOON},,"m[1-3,9-2]"\n', "unreadable node list", r".*, got '9-2' \('m\[1-3,9-2\]'\)"),
        # Some blocks do not name their nodes.
        (f"{NOON},,MIR-04000-7BFF1-32768\n", "unreadable node list", "nodes, got blocks"),
        (f"{NOON},,ANL-R00-M0-1024\n", "unreadable node list", "a block of 512 nodes"),
        (f"{NOON},\n", "wrong number of columns", "3 columns, got 2"),
    ],
    "swf": [
        (line(2, run=-1), "never ran", ""),
        (line(2, run=0), "zero length", ""),
        (line(2, run=1e-10), "zero length", ""),
        (line(2, used=-1, asked=-1), "no processors", ""),
        (line(2, wait=-1), "no waiting time", "a waiting time"),
        (line(2, submit=-5), "impossible time", "times from 1970"),
        (line(2, run=1e12), "impossible time", "times from 1970"),
        ("1 2 3\n", "wrong number of fields", "18 numbers"),
        (line(2).replace(" 10 ", " nan "), "wrong number of fields", "18 numbers"),
        ("2 0 0", "last line cut off", "18 numbers"),
    ],
    "pbs": [
        (entry("E", at=3600, start=0, end=3600), "no nodes", ""),
        (entry("E", at=3600, end=3600, exec_host="c1/0"), "never started", ""),
        (entry("E", at=3600, start=60, end=60, exec_host="c1/0"), "zero length", ""),
        (entry("E", at=3600, start=70, end=60, exec_host="c1/0"), "end before start", ""),
        (entry("E", at=3600, start=0, exec_host="c1/0"), "impossible time", "end=SECONDS"),
        (entry("E", at=3600, start=0, end="1e300", exec_host="c1/0"), "impossible time", "end=SECONDS"),
        (entry("u", "2.pbs", start=0, exec_host="c2/0").replace("2026", "9999"), "change at an unknown time", ""),
        (entry("R", "2.pbs", at=3600), "about no run", ""),
        (entry("S", at=3600, exec_host="c1/0"), "start without a time", ""),
        (entry("S", at=3600, start=0), "start without nodes", ""),
        ("2026-09-01 00:00:00;E;1;\n", "malformed line", "MM/DD/YYYY"),
        # The last digits of a time may lack where a file breaks off: such a field is left out.
        (entry("S", "2.pbs", at=3600, exec_host="c2/0", start=60).rstrip()[:-4], "start without a time", ""),
        (entry("E", "2.pbs", at=9, start=0, exec_host="c2/0", end=1).rstrip()[:-5], "last line cut off", "end=SECONDS"),
        ("09/01/2026 00:00:0", "last line cut off", "MM/DD/YYYY"),
    ],
    "lsf": [
        ('"JOB_NEW" "10.1" 100 1\n', "about no finished job", ""),
        (finish(start=0), "never started", ""),
        (finish(hosts=()), "no nodes", ""),
        (finish(start=200), "zero length", ""),
        (finish(start=300), "end before start", ""),
        (finish(start=10**12, end=10**12 + 1), "impossible time", "epoch seconds"),
        ("JobID|Start|End\n", "malformed line", "all fields"),
        ('"JOB_FINISH" "10.1" 200\n', "malformed line", "all fields"),
        (finish(("h1", "h2")).partition('"h2"')[0] + "\n", "malformed line", "all fields"),
        (finish(("h1", "h2")).partition('"h2"')[0], "last line cut off", "all fields"),
        (finish().replace("200", "soon", 1), "malformed line", "all fields"),
        (finish().replace('0 1 "h1"', '-17 1 "h1"'), "malformed line", "all fields"),
    ],
}
"""A record more, for which reason it is dropped, and what was expected of it if it is malformed."""


@pytest.mark.parametrize(
    ("form", "text", "reason", "expected"), [(form, *case) for form, cases in DROPPED.items() for case in cases]
)
def test_records_that_give_no_job(tmp_path, form, text, reason, expected):
    """Each is dropped for one reason; malformed ones are bad, are told with their line, and may be too many."""
    path, own = tmp_path / "log", OWN.get(form, {})
    (whole, before), (reading, after) = (read_text(form, path, GOOD[form] + more, **own) for more in ("", text))
    assert after == before
    # What changes a run of PBS may name other nodes.
    assert form == "pbs" or reading.rows.records().names == whole.rows.records().names
    assert (len(reading.rows) + sum(map(len, reading.counted)), reading.window_ns) == (1, whole.window_ns)
    assert (dict(reading.tally.dropped), reading.tally.bad) == ({reason: 1}, bool(expected))
    if expected:
        number = (GOOD[form] + text.removesuffix("\n")).count("\n") + 1
        with pytest.raises(LogError, match=rf"log:{number}: Expected {expected}.*1 of \d records are unusable, more"):
            read_text(form, path, GOOD[form] + text, max_bad=0.01, **own)[0].tally.check()


TABLE = "from,to,on\n1,2,3\n"
AUTUMN = "from,to,on\n2026-10-25 02:30:00,2026-10-25 02:40:00,n1\n"
LATE = line(wait=-1, used=16) + line(2, submit=10, wait=-1, used=16) + line(3, submit=19, wait=-1, run=1, used=1)
GAPS = "log: Expected metadata with gap_seconds above 0"
REFUSED = {
    "slurm": [
        # Windows that end before they start, lie outside the log, or are not told of a log that tells none.
        (JOBS, {"start": "1970-01-01T00:03:20"}, "Expected the window to start before its end"),
        (JOBS, {"start": "2026-01-01", "end": "2026-02-01"}, "within the log, .* from 1970-01-01T00:00:10Z"),
        (JOBS, {"start": "1970-01-01", "end": "1970-01-01T00:00:10"}, "Expected a window within the log"),
        (JOBS, {"start": "yesterday"}, "Expected a time such as 2026-09-01T08:00, got 'yesterday'"),
        (JOBS, {"window": "trusted", "start": None}, "can be trusted: .* from 1970-01-01T00:00:10Z to 1970-"),
        (JOBS, {"window": "trusted", "end": None}, "Nothing of the log can be trusted"),
        # Logs in which nothing ran.
        (f"{SHORT}\n", {}, r"no record at all\."),
        (f"{SHORT}\n1||100|200|0|None assigned\n", {}, r"1 records \(1 no nodes\)"),
        # Nodes of which none is left, or that are none.
        (rows((100, 110, "n[1-20]")), {"nodes": "m[1-2]"}, r"log \(n1, .*n10 and 10 more\), got others \(m1, m2\)"),
        (JOBS, {"exclude_nodes": "n[1-3]"}, "left after --partition and --exclude-nodes"),
        (JOBS, {"exclude_nodes": "n[1-"}, "--exclude-nodes: Expected a list of nodes"),
        (rows((100, 110, "n1", "gpu")), {"partitions": ("gqu",)}, r"partition 'gqu'\. Did you mean 'gpu'\?"),
        (JOBS, {"partitions": ("gpu",)}, r"'gpu'\. No partitions"),
        (CLUSTERS, {"cluster": "wets"}, r"Unknown cluster 'wets'\. Did you mean 'west'"),
        # Neither a log nor an inventory without numbers is guessed at.
        (ONE, {"nodes": "n1", "unit": "gpu"}, "Missing --gpus-per-node, .* how many gpus n1 has"),
        (JOBS, GPUS, "--unit gpu: the log does not say how many gpus jobs held"),
        (ONE, {"nodes": "n1", "by": "node-type"}, "--by node-type: neither the log nor --nodes"),
        # Tables of downtimes that are none.
        (JOBS, {"downtimes": "node|from|end\n"}, r"downtimes:1: Expected a column timestart or .* got none\."),
        (JOBS, {"downtimes": "\n\n"}, "downtimes: Expected a header and rows"),
        # Settings out of range.
        (JOBS, {"min_gap_s": -1}, "Expected 0 <= --min-gap"),
        (JOBS, {"min_hole_s": float("nan")}, "Expected 0 <= --min-hole"),
        (JOBS, {"max_bad": 1.5}, "Expected --max-bad between 0 and 100 %, got 150 %"),
        (JOBS, {"procs_per_node": 0}, "Expected --procs-per-node >= 1"),
        (JOBS, {"procs_per_node": ((12, 0),)}, r"Expected --procs-per-node >= 1, got 0\."),
        (JOBS, {"nodes": ""}, "Expected --nodes to be"),
        (JOBS, {"offer": ("sleep",)}, "Expected --offer to be one of reserved, planned, down"),
        # Columns that nothing names, or that are not there.
        ("|".join(COLUMNS) + "\n1|100|200|n1|a\n", {"columns": COLUMNS}, "--columns"),
        (
            "1|100|200|n1|a\n",
            {"columns": (*COLUMNS[:3], "NodeLis")},
            r"--columns: .* NodeList, .* Closest: NodeLis, ",
        ),
        ("JobID|State|StartTime|End|NodeList\n", {}, r":1: .* column Start, got none\. Closest: State, StartTime"),
        ("1|100|200|n1|a\n", {}, "log:1: Expected a header, or --columns"),
        ("|".join(["1"] * len(XDMOD_COLUMNS)), {}, "got neither; --preset xdmod of `import --format table` names them"),
        ("JobID|Start|End|Nodes\n", {}, r"log:1: Expected a column NodeList, got none\."),
        ("    JobID    Start\n--------- --------\n", {}, r"Expected columns between bars \(sacct -P\), got '"),
        # JSON that is not whole, or about something else.
        ('{"jobs": [{"job_id": 1}, {"job', {}, "log: Expected .*jobs that are malformed or cut off after 1"),
        ('{"jobs": [{"job_id": 1}, }]}', {}, "log: Expected .*jobs that are malformed or cut off after 1"),
        ('{"data_parser": 1}', {}, "log: Expected .*something else"),
        ('{"nodes": [{"hostname": "a"}]}', {}, "log: Expected .*jobs of Slurm, got nodes"),
    ],
    "table": [
        # A column that is missing, or there twice, is named with the closest one; so are roles and presets.
        ("Began,to,on\n1,2,3\n", {}, r"log:1: Expected a column from for start, got none\."),
        ("frm,to,on\n1,2,3\n", {}, r"log:1: Expected a column from for start, got none\. Closest: frm, to, on\."),
        ("From,FROM,to,on\n1,2,3\n", {}, r"log:1: Expected one column from for start, got From and FROM\."),
        (TABLE, {"map": ()}, r"log:1: Missing --map or --preset: the columns are from, to, on\."),
        (TABLE, {"map": ("start=from",)}, "--map: Expected columns for start, end, and nodes or count"),
        (TABLE, {"map": ("start",)}, r"--map: Expected pairs such as start=COLUMN, got 'start'\."),
        (TABLE, {"map": ("strat=from",)}, r"--map: Unknown role 'strat'\. Did you mean 'start'\?"),
        (TABLE, {"map": (*MAP, "end=x")}, "--map: Expected each role and each column once, got 'end=x'"),
        (TABLE, {"map": (*MAP, "count=on")}, "--map: Expected each role and each column once"),
        (TABLE, {"preset": "pm10"}, r"Unknown preset 'pm10'\. Did you mean 'pm100'\?"),
        (TABLE, {"preset": "pm100", "map": ()}, "log:1: Expected a column start_time for start of preset pm1"),
        ("a,b\n1,2,3\n", {"preset": "xdmod", "map": ()}, "log:1: Expected columns between bars"),
        ("\n", {}, r"log: Expected a header and rows of jobs, got blank lines\."),
        ('[{"from": 1}]\n1,2,3\n', {}, "Expected a table or JSON lines, got a JSON array"),
        # A quote that nothing closes would swallow the rows below, whose nodes would look idle: its line is named.
        *(
            (f"from,to,on\n{text}\n1,2,3\n", {}, "log:2: Expected CSV, got something else")
            for text in ('"1,2\n3,4', '1,"2\n3,4\n5,"6', '1,"2\n' + "3,4\n" * 300)
        ),
        # Times with and without a zone in one file cannot be told apart by whoever reads it.
        (AUTUMN, {}, "Missing --tz"),
        *(
            (f"{AUTUMN}{other},,n1\n", {"zone": "UTC"}, "log:3: Expected times without a zone as above, got '")
            for other in ("2026-09-01T12:00:00Z", f"{NOON}")
        ),
    ],
    "swf": [
        # Another separator or format, logs in which nothing ran or waits are missing, machines of no size.
        (line().strip().replace(" ", ";"), {}, "log:1: Expected 18 numbers separated by blanks, got '1;0"),
        ("; UnixStartTime: 0\nJobID|Start|End\n", {}, "log:2: Expected 18 numbers separated by blanks, got 'JobID"),
        (HEADER_SWF, {}, r"No job ran among 0 records\."),
        (HEADER_SWF + line(run=-1), {}, r"No job ran among 1 records\."),
        (HEADER_SWF + LATE, {}, r"log: Expected waiting times .* more than the 8 nodes for 5 % of the time\."),
        (line(), {}, "--nodes.* MaxNodes nor MaxProcs"),
        ("; MaxNodes: 7\n; MaxProcs: 16\n" + line(), {}, "--procs-per-node: MaxProcs 16 is no multiple of MaxNodes 7"),
        (line(), {"nodes": "0"}, "Expected 1 to 1,000,000 nodes, got 0"),
        (
            HEADER_SWF + line(),
            {"partitions": ("a",), "downtimes": ("x",)},
            "^--downtimes and --partition cannot",
        ),
    ],
    "lsf": [("\n", {}, r"No records of busy nodes in the log: no record at all\.")],
    "watch": [
        (journal(session(0)), {}, "Expected two polls or more, got one"),
        (journal(session(0), poll(30), poll(30)), {}, r":5: Expected a time after those above, got '1788220830\.000'"),
        (journal(session(0), ["1788220830.000 + asleep n1"]), {}, ":4: Expected states of nodes"),
        (journal(session(0), ["1788220830.000 ! x"]), {}, ":4: Expected states of nodes"),
        (journal([f"{DAY}.0 = often"]), {}, ":2: Expected states of nodes"),
        (journal(session(0), ["1788220830.000 + idle n[1-"]), {}, ":4: Expected"),
    ],
    "spot": [("0,add,a\n", {}, "Expected the window to start before its end")],
    "counts": [
        ("timestamp,count\n2026-09-01T12:00:00Z,0\n", {}, r"Expected counts of nodes above 0, got none\."),
        ("timestamp,count\n2026-09-01T12:00:00Z,1\n", {}, "Expected the window to start before its end"),
        ("timestamp,number\n", {}, "log:1: Expected columns timestamp, count, each once, got timestamp, n"),
        ("\n\n", {}, "log:1: Expected columns timestamp, count"),
        (f"{DATED}2026-09-01, 12:00, 2\n", {}, "log:6: Expected date, time, count, got"),
        (f"{DATED}2026-09-31, 12:00:00, 2\n", {}, "log:6: Expected a time such as"),
        ("2026-09-01, 12:00:00, 2000000\n", {}, "log:1: Expected date, time, count, got"),
        *((SAMPLED.replace("300", gap), {}, GAPS) for gap in ("0", "1e18")),
        *((SAMPLED.replace("[0, 2, 2, 1]", data), {}, GAPS) for data in ("[1.5]", "[]")),
        (SAMPLED[:-2], {}, "log: Expected counts in JSON, got"),
        (COUNTS, {"nodes": "a[1-2]"}, "Expected --nodes with 3 nodes or more, as many as were counted, got 2"),
    ],
}
"""A log, settings of its import, and what was expected."""


@pytest.mark.parametrize(
    ("form", "text", "settings", "message"), [(form, *case) for form, cases in REFUSED.items() for case in cases]
)
def test_what_is_refused(tmp_path, form, text, settings, message):
    """An import of which nothing would follow is refused, with what was expected, and where."""
    with pytest.raises(InputError, match=message):
        import_text(tmp_path / "log", form, text, **({"window": "asked"} | OWN.get(form, {}) | settings))
