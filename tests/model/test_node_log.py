import numpy as np

from bftrainer.model import NodeLog


def test_log_without_transitions_has_no_rows():
    """A window in which no node is ever idle is a log all the same, with no rows."""
    none = np.array([], dtype=np.int64)
    log = NodeLog(("a",), 0, 10, none, none.astype(np.int32), none.astype(np.bool_))
    assert list(log.rows()) == []
