"""The benchmarks that `tidings bench` runs in a checkout. They are not part of the installed package."""
