"""`hilum check`: examines an installation, changes nothing, and gives remedies."""
