"""Every cost rule, once: its docstring says what autograd keeps, as measured on torch (CPU)."""
