"""The steps of the pipeline (admit, match, govern, emit) and the operations that run through them."""
