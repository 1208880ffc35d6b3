"""Where results go: reserved, filled apart, in place whole or not at all."""

from __future__ import annotations

import pytest

from bftrainer.errors import OutputError
from bftrainer.experiment import numbered, result_directory


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def results(path):
    """Make a result directory."""
    path.mkdir()
    (path / "summary.json").touch()
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


def test_a_taken_place_is_refused(tmp_path):
    """Without force, an existing directory is refused before anything runs."""
    with pytest.raises(OutputError, match="Expected no such directory yet"), result_directory([tmp_path]):
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

    with pytest.raises(OutputError, match="Expected to write results"):
        meet()
    assert names(place) == ["theirs"]
    assert names(tmp_path) == ["out"]


@pytest.mark.parametrize("path", [".", "../here", ".."])
def test_the_current_directory_is_not_replaced(tmp_path, monkeypatch, path):
    """Not even by force, not even if it looks like a result, under whatever name."""
    (tmp_path / "summary.json").touch()
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
