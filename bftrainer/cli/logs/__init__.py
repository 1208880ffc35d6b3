"""Commands on logs, traces of nodes and task sets."""
