"""Watch a scheduler, to tell when its nodes are idle."""
