"""`bftrainer assess`: from files to a verdict; resumed, refused, and told."""

import json

import pytest

from bftrainer import parallel
from bftrainer.campaigns import assess as assessing
from bftrainer.errors import SettingsError
from bftrainer.files.directories import JOURNAL
from bftrainer.nodelogs import write_node_log
from tests.campaigns.test_assess import machine
from tests.cli.conftest import check_refusal

# A job of 4 nodes every two hours, for an hour each: of six nodes four are idle for half of the time, two always.
SWF = "; MaxNodes: 6\n; UnixStartTime: 1788220800\n" + "".join(
    f"{n} {7200 * n} 0 3600 4 -1 -1 4 -1 -1 1 1 1 1 1 1 -1 -1\n" for n in range(24 * 15)
)

HEADER = "JobIDRaw|Partition|State|Start|End|NNodes|NodeList|AllocTRES|JobName\n"


@pytest.fixture
def log(here):
    """A node log of nine days."""
    write_node_log(here / "idle.parquet", machine(3600, 7200, days=9, nodes=16))
    return "idle.parquet"


def summary(place):
    """The JSON, but for how it was called."""
    return {key: value for key, value in json.loads((place / "summary.json").read_text()).items() if key != "command"}


def test_what_is_assessed(call, here, monkeypatch):
    """A node of --unit gpu is one GPU; the site's tasks are those of the file; several files are said to be one log."""
    plans = []

    def stop(plan, *_):
        plans.append(plan)
        raise SettingsError("enough")

    monkeypatch.setattr(assessing, "assessment_of", stop)
    for name, numbers in (("log.txt", range(100)), ("more.txt", range(100, 240))):
        begins = {number: 1788220800 + 3600 * number for number in numbers}
        rows = (f"{n}|x|COMPLETED|{s}|{s + 3599}|1|n1|cpu=4,gres/gpu=1|j\n" for n, s in begins.items())
        (here / name).write_text(HEADER + "".join(rows))
    words = ("--unit", "gpu", "--gpus-per-node", 4, "--window", "asked", "--start", "2026-09-01", "--end", "2026-09-10")
    done = call("assess", "log.txt", "more.txt", *words, "--tasks", "tasks.toml", "-o", "found")
    said = "Note: 2 files were taken for the log of one machine; assess each machine by itself.\nError: enough\n"
    assert done.err.endswith(said), done
    (plan,) = plans
    assert (plan.gpus_per_node, [task.name for task in plan.tasks]) == (1, ["J0", "J1"])


@pytest.mark.long
def test_a_scheduler_log(call, here, monkeypatch):
    """It is imported, assessed and told; the node log is kept, so that the recommended settings can be replayed."""
    monkeypatch.setattr(parallel, "usable_processors", lambda: 1)  # in this process
    (here / "log.swf").write_text(SWF)
    done = call(
        "assess", "log.swf", "--start", "2026-09-02", "--end", "2026-09-28", "-o", "found", "--gpus-per-node", 2
    )
    assert done.status == 0, done
    assert done.out.startswith("Worth it")
    found = summary(here / "found")
    names = {".bftrainer", "brief.pdf", "idle.parquet", "page.html", "summary.json"}
    assert {path.name for path in (here / "found").iterdir()} == names
    assert found["idle"]["share"] == pytest.approx(4 / 6, abs=0.01)
    assert any("names no nodes" in text for text in found["caveats"])
    page = (here / "found" / "page.html").read_text()
    for text in (found["sentence"].partition(":")[0], *found["next"][:2], "GPU-hours", "Where the idle node-time went"):
        assert text.replace("&", "&amp;").replace("'", "&#39;") in page
    assert "<script" not in page
    for command in ("report", "compare"):
        check_refusal(call(command, "found"), "the page of what is here is found/page.html")
    best = found["recommended"]
    words = ("-Tfwd", best["forward_time_s"], "-maxJ", best["max_tasks"])
    assert call("replay", "--node-log", "found/idle.parquet", *words, "--solver", "dp", "--no-baseline").status == 0


@pytest.mark.long
def test_killed_and_resumed_is_straight_through(call, log, here, monkeypatch):
    """What was done is not done again; all figures are those of an assessment by two processes that never stopped."""
    monkeypatch.setattr(parallel, "usable_processors", lambda: 2)
    assert call("assess", log, "-o", "found", "--json").status == 0
    replayed, done = assessing._replay, []

    def dies(*given):
        """The second replay does not return."""
        done.append(given)
        if len(done) == 2:
            raise KeyboardInterrupt
        return replayed(*given)

    monkeypatch.setattr(assessing, "_replay", dies)
    monkeypatch.setattr(parallel, "usable_processors", lambda: 1)  # in this process
    stopped = call("assess", log, "-o", "parted")
    assert stopped.status == 130
    assert "Finished steps are kept; the same command with --resume continues in parted." in stopped.err
    assert not (here / "parted").exists()
    journal = here / ".parted.new" / JOURNAL
    for content in (b"{}\n", b"no\n", journal.read_bytes() + b"3\n"):
        before = journal.read_bytes()
        journal.write_bytes(content)
        check_refusal(call("assess", log, "-o", "parted", "--resume"))
        journal.write_bytes(before)
    with monkeypatch.context() as patch:
        patch.setattr("bftrainer.files.writing.os.geteuid", lambda: 12345)
        check_refusal(call("assess", log, "-o", "parted", "--resume"))
    check_refusal(call("assess", log, "-o", "parted", "--offer-after", 60, "--resume"))
    with journal.open("ab") as file:
        file.write(b'["cut')
    assert call("assess", log, "-o", "parted", "--resume").status == 0
    names = ("forward_time_s", "max_tasks", "give_way", "notice_s")
    # Grants are measured on the end of the log alone.
    replays = {
        (config.tasks[0].name, config.node_log.start_ns, *(getattr(config, name) for name in names))
        for (config,) in done
    }
    assert len(done) == len(replays) + 1  # the second again, and not the first
    assert summary(here / "parted") == summary(here / "found")
