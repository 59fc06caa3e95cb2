"""The heat map of a result: class activation maps over the images that they speak about, as one Secondary Capture image.

`choice` says what is shown, `display` makes an image visible, `overlay` colours it, `sheet` puts panels and words together, and
`secondary_capture` makes the document. An addition to the report, never a part of what it says: see `hilum.report.build_report`.
"""
