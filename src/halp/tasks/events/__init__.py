"""Reading and writing events, one file per family of formats."""
