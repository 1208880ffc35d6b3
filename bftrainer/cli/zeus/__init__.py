"""Commands on recurring jobs: simulation, server, master."""
