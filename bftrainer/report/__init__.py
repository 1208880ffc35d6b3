"""Reports of runs: figures as numbers (`metrics`, `intervals`), charts, pages, and figures for print."""
