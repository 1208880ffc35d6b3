"""What schedulers and clouds log of a machine, turned into its idle nodes."""
