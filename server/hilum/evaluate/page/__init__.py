"""The result as one HTML file."""
