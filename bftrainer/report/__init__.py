"""What a run says: numbers (`metrics`, `intervals`) and figures (`zeus_figures`)."""

from bftrainer.report.metrics import Intervals, decision_metrics, pool_metrics, task_metrics

__all__ = ["Intervals", "decision_metrics", "pool_metrics", "task_metrics"]
