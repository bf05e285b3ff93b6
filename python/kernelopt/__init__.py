"""KernelOPT: the Python side. It observes (capture, compile, run, time, compare) and decides nothing; all policy is in the
`kernelopt` executable (DESIGN sections 1 and 2)."""

__version__ = "0.1.0"
