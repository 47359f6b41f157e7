"""The second opinion: each declaration's twin, a plain ``nn.Module`` written by hand from the paper, and measuring it.

The files have the names of ``blockcalc.blocks`` and are meant to be opened side by side. This is the only place that
imports torch.
"""
