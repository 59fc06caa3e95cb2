"""The heat map of a result: class activation maps over the source images, as Secondary Capture.

`choice` chooses the maps, `display` makes an image visible, `overlay` colours it. `sheet` combines
panels and words, and `secondary_capture` makes the document. It is an addition to the report, never
a part of its content: see `hilum.report.build_report`.
"""
