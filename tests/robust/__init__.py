"""What users may rely on when input is bad, names are hostile, values are extreme or sizes are none."""
