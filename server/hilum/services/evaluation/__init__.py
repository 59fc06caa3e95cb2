"""`evaluate`: scores from an export, a campaign or another table, against labels."""
