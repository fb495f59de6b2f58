"""TOML files that describe something to be run: read strictly, their mistakes named by line."""
