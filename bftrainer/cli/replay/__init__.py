"""Commands on one run: replay, compare, report, plot, audit."""
