"""What torch's caching allocator counts as allocated for a tensor: c10/cuda/CUDACachingAllocator.cpp and its constants."""

from __future__ import annotations

from ..dims import Dim, ceiling, chosen

MIB = 2**20
_SMALLEST = 512  # kMinBlockSize: every size is a multiple
_OWN = 10 * MIB  # kMinLargeAlloc: from here on a tensor gets memory of its own
_STEP = 2 * MIB  # kRoundLarge: in such steps
_SPLIT = MIB  # kSmallSize: a rest of no more stays with its block


def counted(size: Dim) -> Dim:
    """Bytes of the block of a tensor of *size* bytes that is there to stay. Smaller ones share memory, and fill it."""
    size = ceiling(size, _SMALLEST) * _SMALLEST
    whole = ceiling(size, _STEP) * _STEP
    return chosen(_OWN, size, chosen(whole - size, _SPLIT, whole, size), size)
