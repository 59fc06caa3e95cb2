"""The result on one page, for viewers that show no structured report.

`content` chooses its sentences, rows and pictures. `canvas` draws it, and `capture` makes a
Secondary Capture of the drawing. `pages` and `encapsulated_pdf` make a PDF of the same content. It
says nothing that the structured report does not say.
"""
