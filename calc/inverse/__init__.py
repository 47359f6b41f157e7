"""Formulas the other way round: for what size does a quantity have a value, stay within one, or equal another.

``grammar`` reads the equation, ``sides`` says what each side of it is on symbols and on numbers, ``signs`` finds the whole
numbers that satisfy it, and ``solve`` answers: as a closed form while sizes are free, else as whole numbers, which the Budget
of the model at the answer has confirmed. ``fields`` does the same for a field of a config.
"""
