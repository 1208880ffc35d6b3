"""Where results go: claimed, filled apart, in place whole or not at all, at whatever instant the process is killed."""

from __future__ import annotations

import os
import re
from contextlib import suppress

import pytest

from bftrainer.errors import OutputError
from bftrainer.files import writing
from bftrainer.files.directories import (
    JOURNAL,
    LOCK,
    MANIFEST,
    check_free,
    clear_leftovers,
    is_free,
    list_written,
    remove_written,
    result_directory,
    written_files,
)
from bftrainer.files.writing import is_locked, lock_file
from tests.killing import run_killed
from tests.tiny import contents


def names(folder):
    """What is in a folder, but for the list of what is ours."""
    return sorted(path.name for path in folder.iterdir() if path.name != MANIFEST)


def write_results(place, *files, error=None, **options):
    """Make a result directory with these files besides a summary, or fail after writing the files."""
    with result_directory(place, **options) as directory:
        for name in (*files, *([] if error else ["summary.json"])):
            (directory.working / name).touch()
        if error:
            raise error("no")
    return place


@pytest.mark.parametrize("error", [ValueError, OSError, KeyboardInterrupt])
def test_an_error_leaves_nothing(tmp_path, error):
    """Whatever ends the writing, neither the directory nor its parents are left, nor a temporary one."""
    with pytest.raises(OutputError if error is OSError else error):
        write_results(tmp_path / "a" / "b", "file", error=error)
    assert names(tmp_path) == []


def test_force_replaces_at_the_end_only(tmp_path):
    """An earlier result stands until the new one is whole, and stays if that never happens."""
    place = write_results(tmp_path / "out")
    with pytest.raises(ValueError, match="no"):
        write_results(place, error=ValueError, force=True)
    assert names(place) == ["summary.json"]
    with result_directory(place, force=True) as directory:
        (directory.working / "new").touch()
        assert names(place) == ["summary.json"]
    assert {*names(place)} == written_files(place) == {"new"}
    assert names(tmp_path) == ["out"]


def check_refused(folder, place, said):
    """A place is refused before the run and at its end, and all stays as it was."""
    before = contents(folder)
    for refuse in (lambda: check_free(place, force=True), lambda: write_results(place, force=True)):
        with pytest.raises(OutputError, match=said):
            refuse()
    assert contents(folder) == before


@pytest.mark.parametrize(("name", "make"), [("thesis.tex", "touch"), (".git", "mkdir"), ("step-logs.csv", "mkdir")])
def test_force_deletes_nothing_of_others(tmp_path, name, make):
    """A directory with anything that was not written as a result is refused."""
    place = write_results(tmp_path / "out")
    getattr(place / name, make)()
    check_refused(tmp_path, place, f"out: Expected nothing but results to replace, found {name}")


WITH_SUMS = f"# Files that bftrainer has written here, with their SHA-256.\n{0:064}  summary.json\n"


@pytest.mark.parametrize("listed", [None, "summary.json\n", "# Mine\nsummary.json\n", "\udc80", WITH_SUMS])
def test_what_nobody_listed_is_not_ours(tmp_path, listed):
    """The name of a file does not make it a result, nor does a list of another program, or of names with sums."""
    place = tmp_path / "out"
    place.mkdir()
    (place / "summary.json").touch()
    if listed is not None:
        (place / MANIFEST).write_text(listed, errors="surrogateescape")
    check_refused(
        tmp_path, place, r"out: Expected results to replace \(a summary that its \.bftrainer lists\), found other files"
    )


@pytest.mark.parametrize("path", [".", "../here", ".."])
def test_the_current_directory_is_refused(tmp_path, monkeypatch, path):
    """A process that is in it, such as the user's shell, would lose it."""
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    check_refused(tmp_path, tmp_path / "here" / path, "can be replaced, got the current one or a mount point")


def test_without_force_places_are_free_if_they_are_empty(tmp_path):
    """Others are refused, also if the hidden directory beside them is somebody else's."""
    (tmp_path / "empty").mkdir()
    write_results(tmp_path / "empty")
    with pytest.raises(OutputError, match=f"{tmp_path}: .*--force"):
        write_results(tmp_path)
    (tmp_path / ".out.new").mkdir()
    (tmp_path / ".out.new" / "mine").touch()
    with pytest.raises(OutputError, match=r"out: Expected .*\.out\.new to be free .*found mine"):
        write_results(tmp_path / "out")
    assert (tmp_path / ".out.new" / "mine").is_file()


def test_only_what_is_below_is_deleted(tmp_path):
    """A list that came with a directory from elsewhere reaches nothing beyond it, nor through links and folders."""
    place, mine = write_results(tmp_path / "out"), tmp_path / "mine"
    (mine / "thesis").mkdir(parents=True)
    listed = ["../mine", str(mine), "summary.json", "link/thesis", f"{MANIFEST}/x", "a\0b", "link", ".", ""]
    list_written(place, listed)
    write_results(place, force=True)
    assert (names(mine), names(tmp_path)) == (["thesis"], ["mine", "out"])
    (place / "link").symlink_to(mine)
    list_written(place, listed)
    remove_written(place)
    assert (names(mine), names(tmp_path)) == (["thesis"], ["mine"])


def test_killed_at_any_step(tmp_path, monkeypatch):
    """The earlier results or the new ones are there, whole, in their place or renamed; the next run cleans up."""
    place = write_results(tmp_path / "out", "old")
    monkeypatch.setattr(writing, "PATIENCE_S", 10.0)
    number = 0
    while run_killed(number := number + 1, lambda: write_results(place, "new", force=True)):
        at = place if place.exists() else tmp_path / ".out.old"
        assert names(at) in (["old", "summary.json"], ["new", "summary.json"])
        assert written_files(at) == {*names(at)}
        write_results(place, "old", force=True)
        assert names(place) == ["old", "summary.json"]
        assert names(tmp_path) == ["out"]
    assert number > 20


def test_what_is_needed_to_resume_goes_last(tmp_path):
    """A run that is killed at any instant can be resumed once it has a journal, or its results are whole."""
    place = tmp_path / "out"

    def finish(**options):
        with result_directory(place, **options) as directory:
            (directory.working / JOURNAL).touch()
            (directory.working / "summary.json").touch()
            directory.is_finished = True

    began, number = False, 0
    while run_killed(number := number + 1, finish):
        is_there = (tmp_path / ".out.new" / JOURNAL).exists() or (place / "summary.json").exists()
        assert is_there or not began
        began = began or is_there
        finish(resume=True)
        assert names(place) == ["summary.json"]
        assert written_files(place) == {"summary.json"}
        assert names(tmp_path) == ["out"]
        remove_written(place)
    assert began


def test_what_killed_runs_left_is_cleared(tmp_path):
    """Their own files alone: names that others gave stay."""
    for name in (".a.new", ".b.new", ".a.new-mine", ".git"):
        (tmp_path / name).mkdir()
        (tmp_path / name / MANIFEST).touch()
    (tmp_path / f".a.new{LOCK}").touch()
    clear_leftovers(tmp_path, re.compile("a"))
    assert names(tmp_path) == [".a.new-mine", ".b.new", ".git"]


def test_what_can_be_resumed_is_kept(tmp_path):
    """Until it is resumed, or dropped by force; neither happens unasked."""
    place = tmp_path / "out"
    with pytest.raises(ValueError, match="no"):
        write_results(place, JOURNAL, error=ValueError)
    assert names(tmp_path / ".out.new") == [JOURNAL]
    assert not is_free(place)
    with pytest.raises(OutputError, match=r"out: An unfinished run is there; --resume continues it, --force"):
        write_results(place)
    with pytest.raises(ValueError, match="no"):
        write_results(place, error=ValueError, resume=True)
    with result_directory(place, resume=True) as directory:
        (directory.working / JOURNAL).rename(directory.working / "summary.json")
    assert names(place) == ["summary.json"]
    with pytest.raises(ValueError, match="no"):
        write_results(place, JOURNAL, error=ValueError, force=True)
    write_results(place, "new", force=True)
    assert names(tmp_path) == ["out"]


@pytest.mark.parametrize("force", [False, True])
def test_what_others_put_there_meanwhile_stays(tmp_path, force):
    """A place that got something else during the run is not overwritten; results are kept under another name."""
    place = tmp_path / "out"

    def meet() -> None:
        with result_directory(place, force=force) as directory:
            (directory.working / "ours").touch()
            place.mkdir()
            (place / "theirs").touch()

    with pytest.raises(OutputError, match=rf"{place}: Cannot put results there: .* they are in .*/out-\w+"):
        meet()
    assert names(place) == ["theirs"]
    (kept,) = tmp_path.glob("out-*")
    assert names(kept) == ["ours"]


def test_a_link_is_followed(tmp_path):
    """Results replaced through a symbolic link are those it points to; a dangling one shows where to make them."""
    write_results(tmp_path / "real")
    for link, target in (("link", "real"), ("dangling", "new")):
        (tmp_path / link).symlink_to(target)
        with result_directory(tmp_path / link, force=True) as directory:
            (directory.working / "file").touch()
        assert (tmp_path / link).is_symlink()
        assert names(tmp_path / target) == ["file"]


def test_one_writer(tmp_path, monkeypatch):
    """A second one is refused, in another process and in the same."""
    monkeypatch.setattr(writing, "PATIENCE_S", 0.0)
    place = write_results(tmp_path / "out")
    assert is_free(tmp_path / "new")
    with suppress(KeyboardInterrupt), result_directory(tmp_path / "new"):
        assert not is_free(tmp_path / "new")
        raise KeyboardInterrupt
    with result_directory(place, force=True):
        with pytest.raises(OutputError, match=f"{place}: Another process is writing there"):
            write_results(place, force=True)
        child = os.fork()
        if not child:
            with pytest.raises(OutputError, match=f"{place}: Another process is writing there"):
                write_results(place, force=True)
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
    with lock_file(place / LOCK, place):
        assert is_locked(place / LOCK)
    assert not is_locked(place / LOCK)
    assert names(tmp_path) == ["out"]
