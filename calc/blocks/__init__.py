"""The block variants: each a frozen dataclass of sizes with one ``trace`` that reads like its forward pass.

Field names are the letters of ``docs/notation.md``. Composition does the rest: a block is an attention, a feed-forward,
their norms, and how they are wired.
"""
