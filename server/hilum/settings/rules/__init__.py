"""Settings of rules about studies, and those of routes and senders written as rules."""
