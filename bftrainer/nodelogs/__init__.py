"""Node logs: when which nodes were idle; from files of any supported form to the model's noun, and back."""

from bftrainer.nodelogs.node_log_files import read_node_log, write_node_log

__all__ = ["read_node_log", "write_node_log"]
