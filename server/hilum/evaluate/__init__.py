"""A release measured against labels: protocols, cases, statistics, result, page."""
