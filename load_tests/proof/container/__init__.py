"""The image without docker: the instructions of deploy/Dockerfile in a clean root, and Hilum in it."""
