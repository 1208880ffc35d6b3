"""Commands that meet a running scheduler."""
