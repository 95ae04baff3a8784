"""The former place of `kernels.dispatch.tuned`: operation files of users import it."""

from kernels.dispatch.tuned import asked, choose, explain, implementation, launch

__all__ = ["asked", "choose", "explain", "implementation", "launch"]
