"""Carriers of a harvest as jobs of Slurm."""
