"""Settings of systems that Hilum connects to."""
