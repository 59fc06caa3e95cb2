"""Parts of tests and load tests: phantoms, senders, receivers, a Hilum of its own."""
