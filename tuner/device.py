"""The former place of `kernels.dispatch.device`, where the tuner and others import it from."""

from kernels.dispatch.device import Device, fingerprint, parse_cpuinfo, resolve

__all__ = ["Device", "fingerprint", "parse_cpuinfo", "resolve"]
