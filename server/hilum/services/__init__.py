"""Use cases that need several rooms: for the command line, REST and the processes."""
