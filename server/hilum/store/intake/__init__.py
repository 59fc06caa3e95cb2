"""Received files become rows of images and studies."""
