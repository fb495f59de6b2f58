"""The pure core: operations go in, effects come out, nothing else happens."""
