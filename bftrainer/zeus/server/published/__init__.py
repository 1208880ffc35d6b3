"""What the published server has: the shape of its models, and the databases that it leaves."""
