"""Callables that packages register: who registers what, and what happens when two mean different things by one name."""

import pytest

from bftrainer import plugins
from bftrainer.errors import SettingsError
from bftrainer.plugins import Plugins

GROUP = "bftrainer.objectives"
OBJECTIVES = Plugins(GROUP, "objective", SettingsError)


@pytest.fixture
def install(tmp_path, monkeypatch):
    """`install("acme", "1.0", "green = acme:f")` installs a package that registers an objective."""
    monkeypatch.syspath_prepend(tmp_path)
    plugins.entries_of.cache_clear()

    def install(name, version, line):
        info = tmp_path / f"{name}-{version}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        (info / "entry_points.txt").write_text(f"[{GROUP}]\n{line}\n")
        (tmp_path / f"{name}.py").write_text(f"def f(task, counts, now_s):\n    return '{name}'\n")

    yield install
    plugins.entries_of.cache_clear()


@pytest.mark.parametrize("name", ["green", "energy"])
def test_two_of_one_name(install, name):
    """None of two packages shadows the other, nor ours: both are named, and either can be had by module:callable."""
    install("bft_acme", "1.0", f"{name} = bft_acme:f")
    install("bft_zebra", "2.1", f"{name} = bft_zebra:f")
    assert OBJECTIVES.names().count(name) == 1
    with pytest.raises(SettingsError) as caught:
        OBJECTIVES.get(name)
    said = str(caught.value)
    assert said.startswith(f"objective {name}: ")
    assert "bft_acme:f and bft_zebra:f" in said
    assert ("bftrainer.objectives.credits:energy" in said) == (name == "energy")
    assert "\n" not in said
    assert OBJECTIVES.get("bft_zebra:f")(None, None, 0.0) == "bft_zebra"


def test_two_that_mean_the_same(install):
    """Who registers what another package registers already, the same callable, takes nothing away."""
    install("bft_acme", "1.0", "green = bft_acme:f")
    install("bft_zebra", "2.1", "green = bft_acme:f")
    assert OBJECTIVES.get("green")(None, None, 0.0) == "bft_acme"
