"""The parts around an engine that the embedded hub and live brokers share."""
