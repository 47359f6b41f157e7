"""The equalities of parameters, FLOPs and caches once more where there is a CUDA device, and skipped, saying so, where not."""

import pytest
import torch

from blockcalc.catalogue import BLOCKS
from blockcalc.refmodel.verify import verify_block

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="torch finds no CUDA device here"),
]


@pytest.mark.parametrize("block", BLOCKS)
def test_every_block_agrees_with_its_twin_on_cuda(block):
    assert [v for v in verify_block(block, most=2, device="cuda") if not v.equal] == []
