"""From a file to a compilation: what the compiler does, in order, and what it keeps for later."""
