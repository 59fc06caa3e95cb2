"""The API: REST, health and metrics."""
