"""Commands of live use: watching a scheduler, and harvesting its idle nodes."""
