"""Commands on preemptible training."""
