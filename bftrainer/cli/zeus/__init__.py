"""Commands for recurring jobs: simulation, server, master."""
