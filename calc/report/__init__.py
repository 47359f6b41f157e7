"""One HTML page a model: its numbers, the closed forms they come from, and inputs that the same forms are computed at.

The page needs no network and no other file. What it computes is the exported JavaScript of the formulas that it shows.
"""
