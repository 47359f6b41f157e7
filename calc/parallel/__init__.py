"""How a model lies on devices, and what they send to each other: layouts, one rank's part, pipeline stages, collectives."""
