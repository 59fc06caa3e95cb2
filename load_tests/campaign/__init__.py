"""Figures of campaigns: beside the bare engine, beside live studies, beside a home-made worker."""
