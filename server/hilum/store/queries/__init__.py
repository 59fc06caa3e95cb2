"""Read-only queries for people, REST and monitors."""
