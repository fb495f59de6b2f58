"""The workloads of the benchmarks: subscriptions and events from fixed seeds."""
