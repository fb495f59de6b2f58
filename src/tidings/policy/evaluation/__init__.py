"""Evaluation of policies: rules compiled to closures and applied to copies of messages."""
