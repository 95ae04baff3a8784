"""One readable Python file that needs only torch: the code of exactly the blocks that a model uses.

The code comes from the modules of `searchspace` and `kernels`, and is not written a second time. `folding` replaces the
dispatch of operations by their plain PyTorch code, `modules` finds definitions, `reach` collects those that the model
reaches, and `writing` puts them into one file.
"""
