"""`make load`: scenarios of studies by C-STORE."""
