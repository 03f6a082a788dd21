"""What operators are made of: their base, the source nodes they are read from, and conditions on their operands."""
