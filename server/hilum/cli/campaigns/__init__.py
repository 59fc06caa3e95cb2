"""Commands on campaigns, their sources and tables of results."""
