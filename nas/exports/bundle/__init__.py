"""One readable file of Python that needs torch only: the code of exactly the blocks that a model uses.

The code is taken from the modules of `searchspace` and `kernels`, not written a second time. `folding` replaces the
dispatch of operations by their plain PyTorch code, `modules` finds definitions, `reach` collects those that the model
reaches, and `writing` puts them into one file.
"""
