"""Commands on many runs."""
