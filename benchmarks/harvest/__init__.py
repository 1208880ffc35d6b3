"""What a harvest does to a real Slurm, one of its own on this machine: each module is a command that prints a table."""
