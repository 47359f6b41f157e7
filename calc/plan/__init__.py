"""Answers to a planner: does it fit, how large may it be, which layout is fastest, what does a run take."""
