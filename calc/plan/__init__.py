"""Plans: what each device of a parallel run holds and sends."""
