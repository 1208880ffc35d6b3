"""Slurm's JSON: jobs, nodes and reservations of several versions, read as the text that Slurm prints."""

from __future__ import annotations

import json

import pytest

from bftrainer.errors import LogError
from bftrainer.nodelogs import slurm_json
from bftrainer.nodelogs.inventory import read_inventory
from bftrainer.schedulers.busy_records import BusyKind
from bftrainer.schedulers.formats.slurm import SlurmImporter
from bftrainer.schedulers.import_settings import ImportSettings
from bftrainer.schedulers.reading import Reading
from bftrainer.schedulers.selected_nodes import read_downtimes
from tests.importing import OPEN_END, read_text, records_of

DAY = 1788220800
NEVER = {"set": False, "infinite": False, "number": 0}


def given(number):
    """A number as newer versions write it."""
    return {"set": True, "infinite": False, "number": number}


def accounted(**changes):
    """A job of accounting, on node n1 from 10 to 20 s."""
    times = {"start": DAY + 10, "end": DAY + 20, "submission": DAY, "elapsed": 10, "suspended": 0}
    job = {"job_id": 7, "allocation_nodes": 1, "nodes": "n1", "partition": "p", "state": {"current": ["COMPLETED"]}}
    return job | {"time": times | changes.pop("time", {})} | changes


def read(tmp_path, document):
    """The reading of a document, and its jobs."""
    text = document if isinstance(document, str) else json.dumps(document)
    reading = read_text(SlurmImporter(), tmp_path / "jobs.json", text)
    return reading, records_of(reading, DAY)


@pytest.mark.parametrize(
    ("job", "span"),
    [
        (accounted(), ("n1", 10, 20, BusyKind.JOB)),
        (accounted(time={"start": given(DAY + 10)}), ("n1", 10, 20, BusyKind.JOB)),
        (accounted(nodes="n[1-2]", allocation_nodes=2), ("n1,n2", 10, 20, BusyKind.JOB)),
        (accounted(nodes="n[1-2]", allocation_nodes=3), ("n1,n2", 10, 20, BusyKind.UNKNOWN)),
        # A job that runs has no end yet.
        (accounted(state={"current": ["RUNNING"]}, time={"end": 0}), ("n1", 10, OPEN_END, BusyKind.JOB)),
        (accounted(state={"current": "RUNNING"}, time={"end": DAY + 99}), ("n1", 10, OPEN_END, BusyKind.JOB)),
        (accounted(state={"current": ["CANCELLED"]}, time={"end": 4294967294}), ("n1", 10, OPEN_END, BusyKind.JOB)),
        # A pending job may have a start, an archived one a number that stands for none.
        (accounted(nodes="None assigned", state={"current": ["PENDING"]}), "no nodes"),
        (accounted(nodes="", time={"start": DAY + 500}, state={"current": ["PENDING"]}), "no nodes"),
        *((accounted(time={"start": start}), "never started") for start in (4294967294, 0, NEVER)),
        (accounted(time={"end": DAY + 10}), "zero length"),
        # What stands for a time and is no number is not taken for a job that did not start or has not ended.
        (accounted(time={"start": "noon"}), "impossible time"),
        (accounted(time={"end": []}), "impossible time"),
    ],
)
def test_jobs_of_accounting(tmp_path, job, span):
    """Numbers plain or with `set`, states words or lists; rows that give no job are counted by their number."""
    reading, jobs = read(tmp_path, {"jobs": [accounted(nodes="n9"), job]})
    assert jobs[1:] == ([] if isinstance(span, str) else [span])
    assert dict(reading.tally.dropped) == ({span: 1} if isinstance(span, str) else {})
    assert reading.tally.bad == (span == "impossible time")
    assert not reading.tally.bad or "jobs.json:2: Expected times such as" in reading.tally.examples[0]


@pytest.mark.parametrize("spread", [None, 2])
def test_jobs_of_the_controller(tmp_path, spread):
    """`squeue --json` has times beside the job; a job that runs has the end that its limit allows."""
    job = {"job_id": 8, "nodes": "n[1-2]", "node_count": given(2), "job_state": ["RUNNING"], "partition": "p|q"}
    job |= {"start_time": given(DAY + 10), "end_time": given(DAY + 3600), "submit_time": given(DAY)}
    done = job | {"job_state": "COMPLETED", "end_time": DAY + 30, "start_time": DAY + 20, "job_id": 9}
    _, jobs = read(tmp_path, json.dumps({"jobs": [job, done], "last_update": given(DAY + 60)}, indent=spread))
    assert jobs == [("n1,n2", 10, OPEN_END, BusyKind.JOB), ("n1,n2", 20, 30, BusyKind.JOB)]


def test_many_jobs(tmp_path, monkeypatch):
    """Documents are read in pieces."""
    monkeypatch.setattr(slurm_json, "_ROWS_AT_A_TIME", 3)
    jobs = [accounted(job_id=number, nodes=f"n{number}") for number in range(1, 12)]
    jobs[8]["time"]["start"] = -5
    jobs[9]["nodes"] = "n[1-"
    reading, records = read(tmp_path, {"jobs": jobs})
    assert len(records) == 10  # a list that is cut off keeps what is known of it
    assert dict(reading.tally.dropped) == {"never started": 1}


@pytest.mark.parametrize(
    ("version", "is_known"), [("data_parser/v0.0.38", True), ("v0.0.44", True), ("data_parser/v0.0.99", False)]
)
def test_versions(tmp_path, version, is_known):
    """Documents of versions that nobody knows yet are read all the same, and it is said."""
    reading, jobs = read(tmp_path, {"meta": {"plugin": {"data_parser": version}}, "jobs": [accounted()]})
    note = f"{tmp_path}/jobs.json: data parser {version[-6:]} is unknown: read like the known ones."
    assert (len(jobs), note in reading.notes) == (1, not is_known)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"jobs": [{"job_id": 1}, {"job', "jobs that are malformed or cut off after 1"),
        ('{"jobs": [{"job_id": 1}, }]}', "jobs that are malformed or cut off after 1"),
        ('{"data_parser": 1}', "something else"),
        ('{"nodes": [{"hostname": "a"}]}', "jobs of Slurm, got nodes"),
    ],
)
def test_documents_that_are_none(tmp_path, text, message):
    """What is not whole, or about something else, is refused in one line that names the file."""
    with pytest.raises(LogError, match=rf"jobs.json: Expected .*{message}"):
        read(tmp_path, text)


NODES = {
    "nodes": [
        {"name": "n1", "state": ["IDLE"], "partitions": ["a", "b"]},
        {"name": "n2", "state": ["MIXED", "DRAIN"], "partitions": ["a"], "reason_changed_at": given(DAY + 30)},
        {"name": "n3", "state": "idle", "state_flags": ["DRAIN"], "partitions": "b"},
    ],
    "last_update": given(DAY + 60),
}


def test_nodes(tmp_path):
    """Nodes are an inventory, with partitions, and with what is out of service."""
    (tmp_path / "nodes.json").write_text(json.dumps(NODES))
    inventory = read_inventory(str(tmp_path / "nodes.json"))
    assert inventory.names == ("n1", "n2", "n3")
    assert inventory.out_of_service == {"n2", "n3"}
    assert inventory.partitions == {"a": ("n1", "n2"), "b": ("n1", "n3")}
    (tmp_path / "nodes.json").write_text('{"nodes": [{"hostname": "x"}]}')
    with pytest.raises(LogError, match=r"nodes.json: Expected nodes of Slurm with names"):
        read_inventory(str(tmp_path / "nodes.json"))


def test_downtimes(tmp_path):
    """Nodes out of service are down since their reason was given, reserved ones, if any, as long as it says."""
    reserved = {"node_list": "n[1-2]", "start_time": given(DAY), "end_time": DAY + 9}
    documents = {
        "nodes": NODES,
        "reserved": {"reservations": [reserved]},
        "none": {"reservations": [], "meta": {"plugin": {"data_parser": "data_parser/v0.0.41"}}},
        "jobs": {"jobs": [accounted()]},
    }
    reading = Reading(ImportSettings())
    for name, document in documents.items():
        (tmp_path / name).write_text(json.dumps(document))
    for name in ("nodes", "reserved", "none"):
        read_downtimes(tmp_path / name, reading, reading.rows, BusyKind.DOWN)
    assert records_of(reading, DAY) == [
        ("n2", 30, OPEN_END, BusyKind.DRAIN),
        ("n3", float("-inf"), OPEN_END, BusyKind.DRAIN),
        ("n1,n2", 0, 9, BusyKind.DOWN),
    ]
    with pytest.raises(LogError, match=r"jobs: Expected nodes or reservations of Slurm, got jobs"):
        read_downtimes(tmp_path / "jobs", reading, reading.rows, BusyKind.DOWN)
