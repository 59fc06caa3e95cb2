"""The findings of a result over its images: a Grayscale Softcopy Presentation State (PS3.3 A.33.1).

`lines` says them, and `contours` outlines class activation maps. `source_image` reads how an image
is displayed. `transforms` and `annotations` write that, and `state` makes the document.
"""
