"""What users may rely on: the promises, the tests that hold torshc to each, and the table of a run."""
