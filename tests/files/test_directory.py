"""Where results go: reserved, filled apart, in place whole or not at all."""

from __future__ import annotations

import pytest

from bftrainer.errors import OutputError
from bftrainer.files.writing import (
    MANIFEST,
    check_free,
    list_written,
    numbered,
    remove_unfinished,
    remove_written,
    result_directory,
)
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
    """While results are written the place is reserved and empty; afterwards they are all there, and nothing else is."""
    with result_directory([tmp_path / "a" / "b"]) as directory:
        (directory.working / "file").touch()
        assert names(tmp_path / "a" / "b") == []
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
    """A file of the user's that has the name of a new result stops it, and all stands."""
    place = results(tmp_path / "out")
    getattr(place / "new", make)()
    before = contents(tmp_path)
    with pytest.raises(OutputError, match="out/new: "):
        replaced(place, "summary.json", "new")
    assert contents(tmp_path) == before


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


def test_what_killed_runs_left_is_removed(tmp_path):
    """Their own files alone: names that others gave, and what was put beside results, stay."""
    for name in (".a.new-12345678", ".a.old-12345678", ".b.new-12345678", ".a.new-mine", ".git"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").touch()
    (tmp_path / ".a.new-87654321").touch()
    results(tmp_path / ".a.old-12345678" / "a")
    remove_unfinished(tmp_path, lambda name: name == "a")
    assert names(tmp_path) == [".a.new-87654321", ".a.new-mine", ".a.old-12345678", ".b.new-12345678", ".git"]
    assert names(tmp_path / ".a.old-12345678") == ["file"]


def test_a_taken_place_is_refused(tmp_path):
    """Without force, an existing directory is refused before anything runs."""
    with pytest.raises(OutputError, match=f"{tmp_path}: .*--force"), result_directory([tmp_path]):
        pytest.fail("the body ran")


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
            (place / "theirs").touch()

    with pytest.raises(OutputError, match=f"{place}: "):
        meet()
    assert names(place) == ["theirs"]
    assert names(tmp_path) == ["out"]


@pytest.mark.parametrize("path", [".", "../here", ".."])
def test_the_current_directory_is_not_replaced(tmp_path, monkeypatch, path):
    """Not even by force, not even if it looks like a result, under whatever name."""
    (tmp_path / "summary.json").touch()
    list_written(tmp_path, ["summary.json"])
    here = results(tmp_path / "here")
    monkeypatch.chdir(here)
    with pytest.raises(OutputError, match="the current directory"), result_directory([here / path], force=True):
        pytest.fail("the body ran")
    assert names(here) == ["summary.json"]


def test_a_link_is_followed(tmp_path):
    """Results replaced through a symbolic link are those it points to; a dangling one shows where to make them."""
    results(tmp_path / "real")
    for link, target in (("link", "real"), ("dangling", "new")):
        (tmp_path / link).symlink_to(target)
        with result_directory([tmp_path / link], force=True) as directory:
            (directory.working / "file").touch()
        assert (tmp_path / link).is_symlink()
        assert names(tmp_path / target) == ["file"]
