"""The header of a report, from its images' headers."""
