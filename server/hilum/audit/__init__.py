"""Rows of the audit as others want them: messages of PS3.15 A.5, syslog, CSV."""
