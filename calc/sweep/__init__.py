"""Any grid of models, sizes, layouts and steps: each row exact, or with the reason why not.

``axes`` reads the values of one axis, and ``spec`` is all that a sweep is asked, in plain text. ``closed`` makes the closed
forms of one rank, ``variants`` says which of them a model on a layout has, and ``boxes`` cuts the grid. ``grid`` fits them
together, and ``evaluate`` gives the rows of a block by its number alone; so a sweep that was stopped goes on where it was, and
a cluster computes the same rows as one process. ``writers`` encode a block, ``parts`` keep each in a file, ``run`` walks them.
"""
