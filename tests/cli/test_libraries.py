"""Libraries that are there and cannot be loaded, as under a limit on memory."""

from __future__ import annotations

import builtins

import pytest


@pytest.fixture
def unloadable(here, monkeypatch):
    """Importing pyarrow fails as the system says it, in a page of advice."""
    del here  # written before
    real = builtins.__import__

    def importing(name, *rest, **options):
        if name.split(".")[0] != "pyarrow":
            return real(name, *rest, **options)
        try:
            raise ImportError("libarrow.so: failed to map segment from shared object", name="pyarrow.lib")
        except ImportError as cause:
            raise ImportError("\n\nIMPORTANT: PLEASE READ THIS\n" * 40, name="pyarrow.lib") from cause

    monkeypatch.setattr(builtins, "__import__", importing)


@pytest.mark.usefixtures("unloadable")
def test_a_library_that_cannot_be_loaded(call, here):
    """One line with what the system said, and status 1: the input is not at fault."""
    (here / "idle.parquet").write_bytes(b"PAR1")
    done = call("replay", "-ndmap", "idle.parquet", "-bdfn", "Jbnd.pkl")
    assert (done.status, done.out) == (1, ""), done.err
    assert done.err == "Error: Cannot load pyarrow.lib: libarrow.so: failed to map segment from shared object.\n"
