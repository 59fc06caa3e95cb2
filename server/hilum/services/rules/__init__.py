"""Rules about studies, explained, tested on cases and on the last studies."""
