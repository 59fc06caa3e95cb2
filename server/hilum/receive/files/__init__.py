"""Files of folders, taken as if they had come by C-STORE."""
