"""Many runs: sweeps over settings, advice proven on held-out weeks, forecasts."""
