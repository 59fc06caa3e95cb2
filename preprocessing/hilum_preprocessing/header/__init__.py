"""The contents of a data set: files, attributes, lookup tables, views and body parts."""
