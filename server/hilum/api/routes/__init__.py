"""The routes of REST and health."""
