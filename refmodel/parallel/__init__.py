"""The twins on several ranks, with torch.distributed: what one rank holds, keeps, computes and sends."""
