"""Pickles of the published replayer, read without running what they hold."""
