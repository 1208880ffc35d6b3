"""Directories of harvests, of checkpoints and of pages: whose they are, and that nobody else's are used."""

from __future__ import annotations

import pytest

from bftrainer.harvest.harvest_directory import ask
from bftrainer.harvest.harvest_events import Submitted
from tests.cli.conftest import assert_matches, call, check_refusal, here
from tests.harvest.test_harvest_command import tasks

__all__ = ["call", "here", "tasks"]


def test_the_sample_and_tasks_of_a_user_do_not_meet(call, tasks):
    """Neither joins the harvest of the other one, which may be in the directory that both have by default."""
    assert call("harvest", "run", tasks(("a", 1, '"true"')), "--max-nodes", 1).status == 0
    refused = call("harvest", "run", "--sample")
    check_refusal(refused)
    assert_matches(r"harvest: Expected tasks of the harvest there \(a\), found none in .*sample\.toml", refused.err)
    refused = call("harvest", "run", tasks(("b", 1, '"true"'), name="other.toml"), "--max-nodes", 1)
    check_refusal(refused)
    assert_matches(r"harvest: Expected tasks of the harvest there \(a\), found none in other\.toml; see", refused.err)


def test_the_sample_replaces_no_file_of_the_user(call, here):
    """A task set of the name that the sample has is kept."""
    (here / "h").mkdir()
    (here / "h" / "sample.toml").write_text("mine")
    check_refusal(call("harvest", "run", "--sample", "-o", "h"))
    assert (here / "h" / "sample.toml").read_text() == "mine"


def test_nothing_to_compare_is_no_failure(call):
    """Of a sample that ends before it has a node there is no page, and its status is what it would be without one."""
    done = call("harvest", "run", "--sample", "-o", "h", "--max-nodes", 1, "--for", "0.01s")
    assert (done.status, done.out) == (0, "h: 0 of 3 tasks done\n"), done
    assert "Note: Nothing was done, so that there is nothing to compare, and no page.\n" in done.err


def test_a_task_that_is_added_has_a_checkpoint_dir_of_its_own(call, tasks):
    """One that another task saves in is not added, which is said."""
    own = 'checkpoint_dir = "own"\n'
    call("harvest", "run", tasks(("a", 1e6), more=own), "--max-nodes", 1, "-o", "h", "--for", "0.3s")
    for name, more in (("b", own), ("d", "")):
        call("harvest", "add", "h", tasks((name, 1, '"true"'), more=more, name=f"{name}.toml"))
    done = call("harvest", "run", "live.toml", "--max-nodes", 1, "-o", "h", "--for", "0.3s")
    assert_matches(r"Not added: task b: Expected a checkpoint_dir of its own, got 'own', that of task a\.", done.err)
    assert [each["task"] for each in call("harvest", "status", "h", "--json").json["tasks"]] == ["a", "d"]


@pytest.mark.parametrize(
    ("place", "whose"), [("h", "'h', that of the harvest"), ("h/checkpoints/a", "'.*', that of task a")]
)
def test_a_checkpoint_dir_in_that_of_the_harvest(call, tasks, place, whose):
    """Where another task saves by default, or the journal is."""
    file = tasks(("a", 1), ("b", 1), more=f'checkpoint_dir = "{place}"\n')
    refused = call("harvest", "run", file, "--max-nodes", 1, "-o", "h")
    check_refusal(refused)
    assert_matches(rf"task b: Expected a checkpoint_dir of its own, got {whose}\.", refused.err)


def test_a_place_that_cannot_be(call, here, tasks):
    """A task is not added for it, and the harvest goes on."""
    call("harvest", "run", tasks(("a", 1e6)), "--max-nodes", 1, "-o", "h", "--for", "0.3s")
    (here / "loop").symlink_to("loop")
    asked = {"name": "b", "min_nodes": 1, "max_nodes": 1, "work": 1, "command": "true", "checkpoint_dir": "loop"}
    ask(here / "h", Submitted(str(here / "live.toml"), asked))
    done = call("harvest", "run", "live.toml", "--max-nodes", 1, "-o", "h", "--for", "0.3s")
    assert done.status == 0
    assert_matches(r"Not added: task b: Expected a checkpoint_dir for checkpoints", done.err)
