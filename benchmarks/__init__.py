"""Benchmarks as specs: seeded instances, named workloads, one driver."""
