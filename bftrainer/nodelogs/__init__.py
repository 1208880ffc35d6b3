"""Node logs (when each node was idle): read them from files of any supported form, and write them."""

from bftrainer.nodelogs.node_log_files import read_node_log, write_node_log

__all__ = ["read_node_log", "write_node_log"]
