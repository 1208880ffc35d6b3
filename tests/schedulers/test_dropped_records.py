"""Records that tell of no job, in every format: they change nothing, and are counted; malformed ones are named."""

from __future__ import annotations

import pytest

from bftrainer.errors import LogError
from bftrainer.schedulers.reading import get_importer
from tests.importing import read_text, records_of
from tests.schedulers.test_accounting import END, START, entry, finish
from tests.schedulers.test_slurm import HEADER
from tests.schedulers.test_tables import HEADER_SWF, MAP, NOON, SPAN, line

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
        (
            "JobID|JobName|Start|End|NodeList|Comment\n1|a|b|100|200|n1|c\n",
            "wrong number of columns",
            "6 columns, got 7",
        ),
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
    importer, path, own = get_importer(form), tmp_path / "log", {"map": MAP} if form == "table" else {}
    whole, reading = (read_text(importer, path, GOOD[form] + more, **own) for more in ("", text))
    assert records_of(reading) == records_of(whole)
    # What changes a run of PBS may name other nodes.
    assert form == "pbs" or reading.rows.records().names == whole.rows.records().names
    assert (len(reading.rows) + sum(map(len, reading.counted)), reading.window_ns) == (1, whole.window_ns)
    assert (dict(reading.tally.dropped), reading.tally.bad) == ({reason: 1}, bool(expected))
    if expected:
        number = (GOOD[form] + text.removesuffix("\n")).count("\n") + 1
        with pytest.raises(LogError, match=rf"log:{number}: Expected {expected}.*1 of \d records are unusable, more"):
            read_text(importer, path, GOOD[form] + text, max_bad=0.01, **own).tally.check()
