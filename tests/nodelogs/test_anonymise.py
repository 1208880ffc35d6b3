"""Pseudonyms: the same for the same name and key, and nothing of the names left."""

from __future__ import annotations

import json
import stat

import numpy as np
import pytest
from hypothesis import given

from bftrainer.errors import LogError
from bftrainer.model import NodeLog
from bftrainer.nodelogs import edit, read_node_log, write_node_log
from bftrainer.nodelogs.edit import Pseudonyms, anonymous_log, read_or_make_key
from tests.importing import idle_of
from tests.strategies import node_logs

NAMES = Pseudonyms(b"k" * 32)


def test_pseudonyms():
    """They depend on kind, name and key, and on nothing else."""
    assert NAMES.of("node", "a") == Pseudonyms(b"k" * 32).of("node", "a")
    others = {NAMES.of("name", "a"), NAMES.of("node", "b"), Pseudonyms(b"l" * 32).of("node", "a")}
    assert NAMES.of("node", "a") not in others
    assert len(NAMES.of("node", "a")) == 13


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
