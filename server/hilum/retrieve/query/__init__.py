"""Plans: queries split by day and time until no answer is cut off, filtered and counted twice."""
