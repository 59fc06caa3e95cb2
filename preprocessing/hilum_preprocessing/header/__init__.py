"""What a data set says: files, attributes, lookup tables, views and body parts."""
