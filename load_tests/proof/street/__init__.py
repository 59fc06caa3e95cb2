"""A whole street under faults: kill -9, full disks, locks, restarts, power cuts."""
