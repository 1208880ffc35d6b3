"""What a run says: numbers (`metrics`, `intervals`), and figures by subject (matplotlib, loaded late)."""

from bftrainer.report.metrics import Intervals, decision_metrics, pool_metrics, task_metrics

__all__ = ["Intervals", "decision_metrics", "pool_metrics", "task_metrics"]
