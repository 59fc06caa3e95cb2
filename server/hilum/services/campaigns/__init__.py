"""Campaigns: plans, their fetches and their progress."""
