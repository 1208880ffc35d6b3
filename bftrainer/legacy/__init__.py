"""Read pickles of the published replayer without running code in them."""
