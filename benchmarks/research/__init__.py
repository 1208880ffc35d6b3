"""What research questions get, foresight and learned curves: each module is a command that prints a table."""
