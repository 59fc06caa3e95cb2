"""`make proof`: faults under load, scripted and repeatable.

Nothing acknowledged is lost, nothing goes out with other bytes.
"""
