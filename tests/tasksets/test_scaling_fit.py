import tomllib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bftrainer.errors import InvalidTaskError
from bftrainer.model import ScalingCurve
from bftrainer.tasksets.measurements import fit_scaling, read_throughput_csv


def test_repeated_measurements_are_averaged():
    """The curve goes through the means, in order of node count, with 0 added."""
    fit = fit_scaling([(4, 30.0), (1, 10.0), (4, 34.0), (1, 8.0), (0, 0.0)])
    assert fit.curve == ScalingCurve((0, 1, 4), (0.0, 9.0, 32.0))


@given(st.floats(0.1, 1e6), st.floats(0.0, 1.0))
def test_exact_laws_are_found(rate_1, fraction):
    """Measurements that follow Amdahl's law give its parameters, without residual."""
    fit = fit_scaling([(n, rate_1 / (1 - fraction + fraction / n)) for n in (1, 2, 4, 8, 16)])
    assert fit.rate_1 == pytest.approx(rate_1, rel=1e-6)
    assert fit.parallel_fraction == pytest.approx(fraction, abs=1e-6)
    assert fit.residual < 1e-6


@given(st.lists(st.tuples(st.integers(1, 64), st.floats(1e-3, 1e6)), min_size=1, max_size=9))
def test_fit_is_always_a_law(measured):
    """Whatever was measured, the law has a positive rate and a fraction from 0 to 1."""
    fit = fit_scaling(measured)
    assert fit.rate_1 > 0
    assert 0 <= fit.parallel_fraction <= 1
    assert fit.residual >= 0


def test_measured_models_scale_almost_linearly():
    """The published shufflenet throughputs fit Amdahl's law within 5 %."""
    rates = {1: 2831.0, 2: 5259.0, 4: 9988.0, 8: 20379.2, 16: 38895.3, 32: 74125.1, 64: 145081.5}
    fit = fit_scaling(rates.items())
    assert 0.99 < fit.parallel_fraction <= 1
    assert fit.residual < 0.05


def test_superlinear_and_falling_measurements():
    """Outside Amdahl's law the nearest bound is taken, and the residual tells."""
    assert fit_scaling([(1, 1.0), (2, 3.0), (4, 9.0)]).parallel_fraction == 1.0
    assert fit_scaling([(1, 9.0), (2, 3.0), (4, 1.0)]).parallel_fraction == 0.0


@pytest.mark.parametrize("unit", [1e-300, 1e-5, 1e200, 1e307])
def test_the_unit_of_work_changes_nothing(unit):
    """The same measurements in any unit, however large or small its numbers, give the same law and residual."""
    measured = [(1, 1.0), (2, 1.9), (4, 3.4), (4, 3.6)]
    plain = fit_scaling(measured)
    fit = fit_scaling([(nodes, rate * unit) for nodes, rate in measured])
    assert fit.rate_1 == pytest.approx(plain.rate_1 * unit)
    assert (fit.parallel_fraction, fit.residual) == pytest.approx((plain.parallel_fraction, plain.residual))


@pytest.mark.parametrize("measured", [[(1, 1e-300), (2, 1e300)], [(1, 5e-324), (2, 1e308)], [(1, 1e-160), (2, 1e160)]])
def test_throughputs_that_no_law_can_hold_for(measured):
    """Where a residual would overflow, the measurements are refused with their range."""
    with pytest.raises(InvalidTaskError, match="one scaling law can hold for"):
        fit_scaling(measured)


def test_section_is_toml():
    """The section printed is what a task set takes."""
    text = fit_scaling([(1, 10.0), (2, 19.0)]).toml()
    assert tomllib.loads("[[task]]\n" + text)["task"][0]["scaling"] == {
        "nodes": [0, 1, 2],
        "throughput": [0.0, 10.0, 19.0],
    }


def test_table_is_read(tmp_path):
    """Columns may stand in either order."""
    (tmp_path / "t.csv").write_text("throughput,nodes\n10,1\n19.5,2\n\n")
    assert read_throughput_csv(tmp_path / "t.csv") == [(1, 10.0), (2, 19.5)]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("nodes\n1\n", ":1: Expected columns nodes, throughput, each once, got nodes."),
        ("nodes,throughput\n", ": Expected at least one measurement, got none."),
        ("nodes,throughput\n1,2\n1.5,3\n", ":3: Expected nodes to be a whole number, got '1.5'."),
        ("nodes,throughput\n1,fast\n", ":2: Expected throughput to be a number, got 'fast'."),
        ("nodes,throughput\n1,nan\n", ":2: Expected throughput to be finite, got nan."),
        ("nodes,throughput\n1,-2\n", ":2: Expected throughput to be finite and >= 0, got -2.0."),
        ("nodes,throughput\n-1,2\n", ":2: Expected nodes >= 0, got -1."),
        ("nodes,throughput\n1,0\n", ":2: Expected throughput 0 on 0 nodes and only there, got 0.0 on 1."),
        ("nodes,throughput\n1\n", ":2: Expected 2 values, got 1."),
    ],
)
def test_bad_tables(tmp_path, text, message):
    """A bad row is refused in one line that names file and line."""
    (tmp_path / "t.csv").write_text(text)
    with pytest.raises(InvalidTaskError) as caught:
        read_throughput_csv(tmp_path / "t.csv")
    assert str(caught.value).endswith(f"t.csv{message}")


def test_nothing_measured():
    """At least one measurement on a node is needed."""
    with pytest.raises(InvalidTaskError, match="on one node or more, got none"):
        fit_scaling([(0, 0.0)])
