"""`Engine.batch`: process a table of operations with column operations; same results as `Engine.handle`, row by row."""
