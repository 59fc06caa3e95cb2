"""`make capacity`: hosts, GPUs, disks and networks for a number of studies a day."""
