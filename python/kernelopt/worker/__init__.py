"""The worker: captures, compiles, runs and times; candidate code runs here and may take the process with it."""
