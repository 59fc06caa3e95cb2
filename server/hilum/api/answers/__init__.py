"""The JSON that routes answer."""
