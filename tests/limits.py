"""The longest that a test waits for something that has to happen: a process that ends, an event that arrives.

A wait that reaches this limit is a failure, so it is the same everywhere, and no test waits longer
(`tests/test_suite.py` checks that). Nothing is measured with it: what is slow on a busy machine still passes.
"""

PATIENCE = 60.0  # seconds
SIZE_VARIABLE = "TEST_SIZE"  # of the environment; see tests/sizes.py
MAX_PROPERTY_SECONDS = 40.0  # of a property in `make test-all`, however many examples it states
CUT = "examples drawn"  # the name of the test report's property that says how many such a property has drawn
