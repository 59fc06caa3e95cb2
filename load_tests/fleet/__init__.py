"""Several hosts, as network namespaces on one bridge: a testbed, faults, a demo."""
