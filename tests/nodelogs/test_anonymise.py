"""Pseudonyms: the same for the same name and key, and nothing of the names left."""

from __future__ import annotations

import json
import stat

import numpy as np
import pytest
from hypothesis import given

from bftrainer.errors import LogError, UnusedOptionsError
from bftrainer.model import NodeLog
from bftrainer.nodelogs import edit, read_node_log, write_node_log
from bftrainer.nodelogs.edit import Pseudonyms, anonymous_log, read_or_make_key
from bftrainer.schedulers.anonymise_sacct import anonymise_sacct
from bftrainer.schedulers.import_log import import_log
from bftrainer.schedulers.reading import ImportSettings
from tests.importing import idle_of
from tests.strategies import node_logs

NAMES = Pseudonyms(b"k" * 32)


def test_pseudonyms():
    """They depend on kind, name and key, and on nothing else."""
    assert NAMES.of("node", "a") == Pseudonyms(b"k" * 32).of("node", "a")
    others = {NAMES.of("name", "a"), NAMES.of("node", "b"), Pseudonyms(b"l" * 32).of("node", "a")}
    assert NAMES.of("node", "a") not in others
    assert len(NAMES.of("node", "a")) == 13
    assert NAMES.number("job", "123").isdecimal()


def test_pseudonyms_differ(monkeypatch):
    """Two names of one log never get the same one."""
    monkeypatch.setattr(edit, "_DIGITS", 1)
    with pytest.raises(LogError, match="take another key"):
        NAMES.of_all("node", (f"n{number}" for number in range(100)))


@given(node_logs())
def test_a_node_log_keeps_its_story(log):
    """Under other names the nodes are idle at the same times, or the same shifted."""
    hidden = anonymous_log(log, NAMES, shift_ns=10**9)
    assert hidden.nodes == tuple(sorted(hidden.nodes))
    before, after = idle_of(log), idle_of(hidden, 1)
    assert {NAMES.of("node", name): spans for name, spans in before.items()} == after
    assert (hidden.start_ns - log.start_ns, hidden.end_ns - log.end_ns) == (10**9, 10**9)


def test_nothing_of_the_site_is_left(tmp_path):
    """Neither names nor paths, commands, checksums or zones are in what is written."""
    story = {
        "command": "bftrainer import slurm /secret/path",
        "inputs": [{"path": "/secret/path", "sha256": "secret"}],
        "zone": "Secret/Zone",
        "inventory": "secret[1-2]",
        "partitions": {"secretive": "secret1"},
        "edits": ["secret"],
        "format": "slurm",
        "min_gap_s": 1.0,
    }
    log = NodeLog(("secret1", "secret2"), 0, 100, np.array([0]), np.array([1], np.int32), np.array([True]), story)
    write_node_log(tmp_path / "shared.csv", anonymous_log(log, NAMES))
    written = (tmp_path / "shared.csv").read_text() + (tmp_path / "shared.json").read_text()
    assert "secret" not in written.lower()
    story = json.loads((tmp_path / "shared.json").read_text())["provenance"]
    assert (story["anonymised"], story["format"], story["min_gap_s"]) == (True, "slurm", 1.0)
    assert list(story["partitions"].values()) == [NAMES.of("node", "secret1")]
    assert read_node_log(tmp_path / "shared.csv").nodes == tuple(sorted(NAMES.of("node", name) for name in log.nodes))


def test_keys(tmp_path):
    """A key is made once, for its owner alone, and read again; what is no key is refused."""
    path = tmp_path / "key"
    key, is_new = read_or_make_key(path)
    assert (len(key), is_new) == (32, True)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert read_or_make_key(path) == (key, False)
    for text in ("", "zz" * 32, "ab" * 31):
        path.write_text(text)
        with pytest.raises(LogError, match=r"key: Expected a key of 64 hexadecimal digits, got something else\."):
            read_or_make_key(path)


SACCT = """\
JobIDRaw|JobID|User|Account|Partition|State|Start|End|NNodes|NodeList|WorkDir|Submit|JobName
71|70_1|ann|phys|batch|CANCELLED by 4711|2026-09-01T08:00:00|2026-09-01T09:00:00|2|fast[1-2]|/home/ann|1788220800|a|b
71.batch|70_1.batch|||||2026-09-01T08:00:00|2026-09-01T09:00:00|1|fast1|||batch
72|72+0|ann|phys|gpu|RUNNING|2026-09-01T10:00:00|Unknown|40|fast[3,4,5|/home/ann|None|c
73|73|bob|chem|batch|COMPLETED|None|2026-09-01T09:00:00|0|None assigned|/home/bob|None|d
74|74|bob|chem|batch|COMPLETED|soon|2026-09-01T09:00:00|1|fast1|/home/bob|None|d
75|75|bob
"""


def test_rows_of_sacct(tmp_path):
    """All that has a name has another one, the same one everywhere; columns of which nothing is known are left out."""
    (tmp_path / "sacct.txt").write_text(SACCT)
    done = anonymise_sacct(tmp_path / "sacct.txt", tmp_path / "shared.txt", NAMES, shift_s=86_400)
    assert (done.rows, done.dropped, done.columns) == (4, 2, ("WorkDir",))
    text = (tmp_path / "shared.txt").read_text()
    for secret in ("ann", "bob", "phys", "chem", "fast", "|batch|", "gpu", "4711", "/home", "|a|b", "|70_"):
        assert secret not in text
    rows = [dict(zip(text.splitlines()[0].split("|"), line.split("|"), strict=True)) for line in text.splitlines()[1:]]
    job = NAMES.number("job", "71")
    assert [row["JobIDRaw"] for row in rows[:2]] == [job, f"{job}.batch"]
    assert rows[0]["JobID"] == f"{NAMES.number('job', '70')}_1"
    assert rows[2]["JobID"].endswith("+0")
    assert rows[0]["State"] == "CANCELLED"
    assert rows[0]["Start"] == "2026-09-02T08:00:00"
    assert rows[0]["Submit"] == str(1788220800 + 86_400)
    assert rows[0]["User"] == rows[2]["User"] != rows[3]["User"]
    assert rows[3]["NodeList"] == "None assigned"


@pytest.mark.parametrize(
    "row",
    [
        "1|cpu=1|a|b|ann|COMPLETED|100|200|n1|7|0:0",
        "1|cpu=1|a|ann|COMPLETED|100|200|n1|ann",
        "1|cpu=1|a|ann|ann|100|200|n1|7",
        "1 ann|cpu=1|a|ann|COMPLETED|100|200|n1|7",
        "1|ann|a|ann|COMPLETED|100|200|n1|7",
    ],
    ids=["bar in a name", "count", "state", "number", "resources"],
)
def test_rows_that_would_tell_a_name(tmp_path, row):
    """What stands where only numbers belong is not written, as when bars in a job's name move the columns."""
    header = "JobID|AllocTRES|JobName|User|State|Start|End|NodeList|NNodes"
    (tmp_path / "sacct.txt").write_text(f"{header}\n{row}\n2|cpu=1|a|ann|COMPLETED|100|200|n1|7\n")
    done = anonymise_sacct(tmp_path / "sacct.txt", tmp_path / "shared.txt", NAMES)
    assert (done.rows, done.dropped) == (1, 1)
    assert "ann" not in (tmp_path / "shared.txt").read_text()


@pytest.mark.parametrize(
    "job", ["7", "7_12", "7_[1-3,8%2]", "7_[1-3,...]", "7_[0x1F]", "7+1", "7_12.batch", "7+1.0", "7.extern"]
)
def test_numbers_of_jobs(tmp_path, job):
    """What they say of arrays, parts and steps stays; the job itself has another number."""
    (tmp_path / "sacct.txt").write_text(f"JobID|Start|End|Timelimit|NodeList\n{job}|100|200|UNLIMITED|n1\n")
    assert anonymise_sacct(tmp_path / "sacct.txt", tmp_path / "shared.txt", NAMES).dropped == 0
    shown = (tmp_path / "shared.txt").read_text().splitlines()[1].split("|")[0]
    assert shown == f"{NAMES.number('job', '7')}{job[1:]}"


def test_resources_of_a_site(tmp_path):
    """Of resources only those are kept that all sites have: licences and kinds of devices have names."""
    tres = "billing=2,cpu=2,gres/gpu:secret=1,gres/gpu=1,license/secret=3,mem=4G,node=1"
    (tmp_path / "sacct.txt").write_text(f"JobID|Start|End|NodeList|AllocTRES\n1|100|200|n1|{tres}\n")
    anonymise_sacct(tmp_path / "sacct.txt", tmp_path / "shared.txt", NAMES)
    assert (tmp_path / "shared.txt").read_text().endswith("|billing=2,cpu=2,gres/gpu=1,mem=4G,node=1\n")


def test_other_columns_under_a_second_header(tmp_path):
    """They are refused: by the first header's columns names would stand where numbers do."""
    (tmp_path / "sacct.txt").write_text(
        "JobID|Start|End|NodeList|NNodes\n1|100|200|n1|1\nJobID|Start|End|NodeList|User\n2|100|200|n1|ann\n"
    )
    with pytest.raises(LogError, match=r"sacct.txt:3: Expected the columns of the first header, got others"):
        anonymise_sacct(tmp_path / "sacct.txt", tmp_path / "shared.txt", NAMES)
    assert not (tmp_path / "shared.txt").exists()


def test_columns_beside_a_header(tmp_path):
    """Columns that are named although the rows have a header are refused, not passed over."""
    (tmp_path / "sacct.txt").write_text(SACCT)
    with pytest.raises(UnusedOptionsError, match=r"--columns \(.*sacct\.txt has a header"):
        anonymise_sacct(tmp_path / "sacct.txt", tmp_path / "shared.txt", NAMES, columns=("JobID", "Start"))
    assert not (tmp_path / "shared.txt").exists()


def test_shared_rows_are_still_a_log(tmp_path):
    """A log of pseudonyms gives the node log of the names, under pseudonyms."""
    (tmp_path / "sacct.txt").write_text(SACCT)
    anonymise_sacct(tmp_path / "sacct.txt", tmp_path / "shared.txt", NAMES)
    given = ImportSettings(start="2026-09-01", end="2026-09-02", zone="UTC", max_bad=1.0, window="asked")
    plain, shared = (import_log("slurm", [tmp_path / name], given) for name in ("sacct.txt", "shared.txt"))
    assert plain.quality.unknown == shared.quality.unknown == 1
    assert {NAMES.of("node", name): spans for name, spans in idle_of(plain.log).items()} == idle_of(shared.log)
