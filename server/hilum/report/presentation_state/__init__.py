"""The findings of a result over its images: a Grayscale Softcopy Presentation State (PS3.3 A.33.1).

`lines` says them, `contours` outlines class activation maps, `source_image` has what an image says
of its display, `transforms` and `annotations` write both, and `state` makes the document.
"""
