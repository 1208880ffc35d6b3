"""Turn logs of schedulers and clouds into node logs: when each node of a machine was idle."""
