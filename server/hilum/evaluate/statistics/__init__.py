"""Statistics of scores against labels, in numpy alone."""
