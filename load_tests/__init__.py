"""Load generator, scenarios and the phantom: synthetic chest radiographs that are ours to publish."""
