"""Where results go: claimed, filled apart, in place whole or not at all, at whatever instant the process is killed."""

from __future__ import annotations

import os
import signal

import pytest

from bftrainer.errors import OutputError, RunDirectoryError
from bftrainer.files import claims, directories
from bftrainer.files.claims import LOCK
from bftrainer.files.directories import JOURNAL, check_free, numbered, result_directory, settle
from bftrainer.files.manifest import MANIFEST, check_intact, list_written, remove_written, written_files
from tests.tiny import contents


def names(folder):
    """What is in a folder, but for the list of what is ours."""
    return sorted(path.name for path in folder.iterdir() if path.name != MANIFEST)


def results(path):
    """Make a result directory."""
    with result_directory([path]) as directory:
        (directory.working / "summary.json").touch()
    return path


def test_a_directory_appears_whole(tmp_path):
    """While results are written nothing is in their place; afterwards they are all there, and nothing else is."""
    with result_directory([tmp_path / "a" / "b"]) as directory:
        (directory.working / "file").touch()
        assert not (tmp_path / "a" / "b").exists()
    assert names(tmp_path / "a") == ["b"]
    assert names(tmp_path / "a" / "b") == ["file"]


@pytest.mark.parametrize("error", [ValueError, OSError, KeyboardInterrupt])
def test_an_error_leaves_nothing(tmp_path, error):
    """Whatever ends the writing, neither the directory nor its parents are left, nor a temporary one."""

    def fail() -> None:
        with result_directory([tmp_path / "a" / "b"]) as directory:
            (directory.working / "file").touch()
            raise error("no")

    with pytest.raises(OutputError if error is OSError else error):
        fail()
    assert names(tmp_path) == []


def test_force_replaces_at_the_end_only(tmp_path):
    """An earlier result stands until the new one is whole, and stays if that never happens."""
    place = results(tmp_path / "out")

    def fail() -> None:
        with result_directory([place], force=True):
            assert names(place) == ["summary.json"]
            raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        fail()
    assert names(place) == ["summary.json"]
    with result_directory([place], force=True) as directory:
        (directory.working / "new").touch()
        assert names(place) == ["summary.json"]
    assert names(place) == ["new"]
    assert names(tmp_path) == ["out"]


def replaced(place, *files):
    """Replace results by others."""
    with result_directory([place], force=True) as directory:
        for name in files:
            (directory.working / name).touch()


def test_force_keeps_what_is_not_ours(tmp_path):
    """What was put beside results stays as it is, whatever it is; of the results nothing is left."""
    place = results(tmp_path / "out")
    (place / "thesis.tex").write_text("mine")
    (place / ".git").mkdir()
    (place / ".git" / "HEAD").write_text("ref")
    (place / "link").symlink_to(tmp_path)
    replaced(place, "summary.json", "new")
    assert names(place) == [".git", "link", "new", "summary.json", "thesis.tex"]
    assert (place / "thesis.tex").read_text() + (place / ".git" / "HEAD").read_text() == "mineref"
    assert (place / "link").is_symlink()
    replaced(place, "summary.json")
    assert names(place) == [".git", "link", "summary.json", "thesis.tex"]
    assert names(tmp_path) == ["out"]


@pytest.mark.parametrize("make", ["touch", "mkdir"])
def test_force_puts_nothing_in_the_place_of_what_is_not_ours(tmp_path, make):
    """A user's file with the name of a new result stops it; both results are kept, and placed when it is gone."""
    place = results(tmp_path / "out")
    getattr(place / "new", make)()
    before = contents(place)
    with pytest.raises(OutputError, match=r"out/new: .*they are in .*\.out\.new"):
        replaced(place, "summary.json", "new")
    assert contents(place) == before
    assert names(tmp_path / ".out.new") == [LOCK, "new", "summary.json"]
    (place / "new").rename(tmp_path / "mine")
    with pytest.raises(OutputError, match="Directory exists"):
        results(place)
    assert names(place) == ["new", "summary.json"]
    assert names(tmp_path) == ["mine", "out"]


@pytest.mark.parametrize("listed", [None, "summary.json\n", "# Mine\nsummary.json\n", "\udc80"])
def test_what_nobody_listed_is_not_ours(tmp_path, listed):
    """The name of a file does not make it a result, nor does a list that another program wrote."""
    place = tmp_path / "out"
    place.mkdir()
    (place / "summary.json").touch()
    if listed is not None:
        (place / MANIFEST).write_text(listed, errors="surrogateescape")
    before = contents(tmp_path)
    with pytest.raises(OutputError, match=r"found other files.*not deleted"):
        check_free(place, force=True)
    with pytest.raises(OutputError, match=r"found other files.*not deleted"):
        replaced(place)
    assert contents(tmp_path) == before


def test_only_what_is_below_is_deleted(tmp_path):
    """A list that came with a directory from elsewhere reaches nothing beyond it."""
    place = results(tmp_path / "out")
    (tmp_path / "mine").touch()
    list_written(place, ["../mine", str(tmp_path / "mine"), "summary.json", ".", ""])
    remove_written(place)
    assert names(tmp_path) == ["mine"]


def kill_at(monkeypatch, step, when):
    """Have this process killed before or after a step."""
    real = getattr(directories, step)

    def killed(*given, **options):
        if when == "after":
            real(*given, **options)
        os.kill(os.getpid(), signal.SIGKILL)

    monkeypatch.setattr(directories, step, killed)


STEPS = ("_seal", "list_written", "_put_in_place", "_exchange", "_retire", "remove_written", "_move_files")


@pytest.mark.long
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("can_exchange", [True, False])
@pytest.mark.parametrize("stays", [False, True])
def test_killed_at_any_step(tmp_path, monkeypatch, step, when, can_exchange, stays):
    """The old results or the new are there, and what is not ours; the next run cleans up."""
    place = results(tmp_path / "out")
    (place / "mine").write_text("mine")
    monkeypatch.setattr(directories, "_stays", lambda target: stays and target == place)
    if not can_exchange:
        monkeypatch.setattr(directories.ctypes, "CDLL", lambda *_, **__: None)
    child = os.fork()
    if not child:
        kill_at(monkeypatch, step, when)
        replaced(place, "summary.json", "new")
        os._exit(0)
    os.waitpid(child, 0)
    if can_exchange and not stays:
        there = {*names(place)} - {LOCK}
        assert there in ({"mine", "summary.json"}, {"new", "summary.json"}, {"mine", "new", "summary.json"})
    replaced(place, "summary.json", "newest")
    assert names(place) == ["mine", "newest", "summary.json"]
    assert (place / "mine").read_text() == "mine"
    assert names(tmp_path) == ["out"]
    for name in written_files(place):
        check_intact(place / name)


def test_leftovers_of_names_with_wildcards(tmp_path):
    """A name is a name: what a killed process left of it is cleaned up, and what looks like it is not."""
    for name in (".a[1].new-12345678", ".a1.new-12345678"):
        (tmp_path / name).mkdir()
        (tmp_path / name / LOCK).touch()
    results(tmp_path / "a[1]")
    assert names(tmp_path) == [".a1.new-12345678", "a[1]"]


def test_what_killed_runs_left_is_settled(tmp_path):
    """Their own files alone: names that others gave, and what was put beside results, stay."""
    for name in (".a.new", ".a.new-12345678", ".b.new", ".a.new-mine", ".git"):
        (tmp_path / name).mkdir()
        (tmp_path / name / ("file" if name != ".a.new-12345678" else LOCK)).touch()
    (tmp_path / ".a.new-87654321").touch()
    settle(tmp_path, lambda path: path.name == "a")
    assert names(tmp_path) == [".a.new-87654321", ".a.new-mine", ".b.new", ".git"]


def unfinished(place, **options):
    """Fail after a checkpoint."""
    with result_directory([place], **options) as directory:
        (directory.working / JOURNAL).touch()
        raise ValueError("no")


def test_what_can_be_resumed_is_kept(tmp_path):
    """Until it is resumed, or dropped by force; neither happens unasked."""
    place = tmp_path / "out"
    with pytest.raises(ValueError, match="no"):
        unfinished(place)
    assert names(tmp_path / ".out.new") == [LOCK, JOURNAL]
    with pytest.raises(OutputError, match=r"out: An unfinished run is there; --resume continues it, --force"):
        results(place)
    with pytest.raises(ValueError, match="no"):
        unfinished(place, resume=True)
    with result_directory([place], resume=True) as directory:
        (directory.working / JOURNAL).rename(directory.working / "summary.json")
    assert names(place) == ["summary.json"]
    with pytest.raises(ValueError, match="no"):
        unfinished(place, force=True)
    replaced(place, "summary.json", "new")
    assert names(tmp_path) == ["out"]


@pytest.mark.parametrize("step", ["list_written", "_put_in_place", "_others"])
@pytest.mark.parametrize("when", ["before", "after"])
def test_what_is_needed_to_resume_goes_last(tmp_path, monkeypatch, step, when):
    """A run that is killed while its results are put in place can be resumed, or is whole, without a checkpoint."""
    place = tmp_path / "out"

    def finish(**options):
        """Write results, and need the checkpoint no more."""
        with result_directory([place], **options) as directory:
            (directory.working / JOURNAL).touch()
            (directory.working / "summary.json").touch()
            directory.unneeded.add(JOURNAL)

    child = os.fork()
    if not child:
        kill_at(monkeypatch, step, when)
        finish()
        os._exit(0)
    os.waitpid(child, 0)
    assert (tmp_path / ".out.new" / JOURNAL).exists() or written_files(tmp_path / ".out.new") or place.exists()
    (tmp_path / ".out.new" / f".{MANIFEST}.abcd1234").touch() if not place.exists() else None
    finish(resume=True)
    assert names(place) == ["summary.json"]
    assert written_files(place).keys() == {"summary.json"}
    assert names(tmp_path) == ["out"]


def test_damage_is_noticed(tmp_path):
    """A result that differs from what was written is refused; a file of the user's is not ours to judge."""
    place = results(tmp_path / "out")
    (place / "mine").write_text("mine")
    check_intact(place / "mine")
    check_intact(place / "summary.json")
    (place / "summary.json").write_text("{}")
    with pytest.raises(RunDirectoryError, match=r"out/summary\.json: Damaged, or changed since it was written"):
        check_intact(place / "summary.json")


def test_a_taken_place_is_refused(tmp_path):
    """Without force, a directory with something in it is refused before anything runs; an empty one is free."""
    results(tmp_path / "empty").joinpath("summary.json").unlink()
    (tmp_path / "empty" / MANIFEST).unlink()
    results(tmp_path / "empty")
    with pytest.raises(OutputError, match=f"{tmp_path}: .*--force"), result_directory([tmp_path]):
        pytest.fail("the body ran")


def test_what_is_left_before_a_lock_is_nothing(tmp_path, monkeypatch):
    """A disk that fails at the first file leaves nothing, and a process killed there leaves nothing that is refused."""
    with monkeypatch.context() as patched:
        patched.setattr(claims, "LOCK", "x" * 300)
        with pytest.raises(OutputError, match="too long"), result_directory([tmp_path / "out"]):
            pytest.fail("the body ran")
    assert names(tmp_path) == []
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".new-abcdefgh").mkdir()
    check_free(tmp_path, force=False)
    assert names(results(tmp_path)) == ["summary.json"]


def test_two_runs_at_once_do_not_meet(tmp_path, monkeypatch):
    """A place is taken from the start of a run: another one gets the next number, and the results of both are kept."""
    monkeypatch.chdir(tmp_path)
    with result_directory(numbered("s")) as first, result_directory(numbered("s")) as second:
        (first.working / "1").touch()
        (second.working / "2").touch()
    assert (str(first.path), str(second.path)) == ("s-1-itrOut", "s-2-itrOut")
    assert names(tmp_path / "s-1-itrOut") == ["1"]
    assert names(tmp_path / "s-2-itrOut") == ["2"]


def test_gaps_in_the_numbers_are_used(tmp_path, monkeypatch):
    """The first number that is not taken."""
    monkeypatch.chdir(tmp_path)
    results(tmp_path / "s-1-itrOut")
    results(tmp_path / "s-3-itrOut")
    with result_directory(numbered("s")) as directory:
        assert directory.path.name == "s-2-itrOut"


def test_what_others_put_there_meanwhile_stays(tmp_path):
    """A place that is no longer empty at the end is not overwritten."""
    place = tmp_path / "out"

    def meet() -> None:
        with result_directory([place]) as directory:
            (directory.working / "mine").touch()
            place.mkdir()
            (place / "theirs").touch()

    with pytest.raises(OutputError, match=rf"{place}: Cannot put results there: .* they are in .*\.out\.new"):
        meet()
    assert names(place) == ["theirs"]
    assert names(tmp_path / ".out.new") == [LOCK, "mine"]


@pytest.mark.parametrize("path", [".", "../here"])
def test_the_current_directory_keeps_its_place(tmp_path, monkeypatch, path):
    """It is filled file by file, as a process that is in it would lose it otherwise; what is not ours stays."""
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    before = here.stat().st_ino
    with result_directory([here / path]) as directory:
        (directory.working / "summary.json").touch()
        (directory.working / "old").touch()
    (here / "mine").touch()
    with pytest.raises(OutputError, match="Directory exists"):
        results(here / path)
    replaced(here / path, "summary.json", "new")
    assert names(here) == ["mine", "new", "summary.json"]
    assert here.stat().st_ino == before


def test_a_directory_in_a_read_only_one_keeps_its_place(tmp_path, monkeypatch):
    """Nothing can be put beside it, so results are written inside it."""
    place = tmp_path / "mine" / "out"
    place.mkdir(parents=True)
    monkeypatch.setattr(directories.os, "access", lambda path, _: path != place.parent)
    with result_directory([place]) as directory:
        assert directory.working.parent == place
        (directory.working / "summary.json").touch()
    assert names(place) == ["summary.json"]


def test_a_link_is_followed(tmp_path):
    """Results replaced through a symbolic link are those it points to; a dangling one shows where to make them."""
    results(tmp_path / "real")
    for link, target in (("link", "real"), ("dangling", "new")):
        (tmp_path / link).symlink_to(target)
        with result_directory([tmp_path / link], force=True) as directory:
            (directory.working / "file").touch()
        assert (tmp_path / link).is_symlink()
        assert names(tmp_path / target) == ["file"]
