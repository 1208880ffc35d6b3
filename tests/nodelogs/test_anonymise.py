"""Pseudonyms: the same for the same name and key, and nothing of the names left."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given

from bftrainer.errors import LogError
from bftrainer.model import NodeLog
from bftrainer.nodelogs import edit, read_node_log, write_node_log
from bftrainer.nodelogs.edit import anonymous_log, pseudonyms, read_key
from tests.importing import idle_of
from tests.strategies import node_logs

KEY = b"k" * 32


def test_pseudonyms():
    """They depend on kind, name and key, and on nothing else."""
    names = pseudonyms(KEY, "node", ["a", "b"])
    assert names == pseudonyms(KEY, "node", ["b", "a"])
    others = {pseudonyms(KEY, "name", "a")["a"], names["b"], pseudonyms(b"l" * 32, "node", "a")["a"]}
    assert names["a"] not in others
    assert len(names["a"]) == 13


def test_pseudonyms_differ(monkeypatch):
    """Two names of one log never get the same one."""
    monkeypatch.setattr(edit, "_DIGITS", 1)
    with pytest.raises(LogError, match="take another key"):
        pseudonyms(KEY, "node", (f"n{number}" for number in range(100)))


@given(node_logs())
def test_a_node_log_keeps_its_story(log):
    """Under other names the nodes are idle at the same times."""
    hidden = anonymous_log(log, KEY)
    assert hidden.nodes == tuple(sorted(hidden.nodes))
    names = pseudonyms(KEY, "node", log.nodes)
    before, after = idle_of(log), idle_of(hidden)
    assert {names[name]: spans for name, spans in before.items()} == after
    assert (hidden.start_ns, hidden.end_ns) == (log.start_ns, log.end_ns)


def test_nothing_of_the_site_is_left(tmp_path):
    """Neither names nor paths, commands, checksums or zones are in what is written."""
    story = {
        "command": "bftrainer import --format slurm /secret/path",
        "inputs": [{"path": "/secret/path", "sha256": "secret"}],
        "zone": "Secret/Zone",
        "inventory": "secret[1-2]",
        "partitions": {"secretive": "secret1"},
        "edits": ["secret"],
        "format": "slurm",
        "min_gap_s": 1.0,
    }
    log = NodeLog(("secret1", "secret2"), 0, 100, np.array([0]), np.array([1], np.int32), np.array([True]), story)
    write_node_log(tmp_path / "shared.csv", anonymous_log(log, KEY))
    written = (tmp_path / "shared.csv").read_text() + (tmp_path / "shared.json").read_text()
    assert "secret" not in written.lower()
    names = pseudonyms(KEY, "node", log.nodes)
    story = json.loads((tmp_path / "shared.json").read_text())["provenance"]
    assert (story["anonymised"], story["format"], story["min_gap_s"]) == (True, "slurm", 1.0)
    assert list(story["partitions"].values()) == [names["secret1"]]
    assert read_node_log(tmp_path / "shared.csv").nodes == tuple(sorted(names.values()))


@pytest.mark.parametrize("text", ["", "zz" * 32, "ab" * 31])
def test_what_is_no_key_is_refused(tmp_path, text):
    """A key has 64 hexadecimal digits."""
    (tmp_path / "key").write_text(text)
    with pytest.raises(LogError, match=r"key: Expected a key of 64 hexadecimal digits, got something else\."):
        read_key(tmp_path / "key")
