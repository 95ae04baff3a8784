"""Commands about this machine: tuning and checks."""
