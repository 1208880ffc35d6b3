"""What learned curves get: a command that prints a table."""
