"""The characters with the same bytes in every character set of DICOM (PS3.5 6.1.2). Torch-free.

ISO_IR 13 (JIS X 0201) has a yen sign for the backslash and an overline for the tilde; all others
write ASCII as ASCII. So one rule has four uses:

* `SAME`: one value. A backslash would be a yen sign or separate values, a tilde an overline.
* `SAME_OR_SEPARATOR`: values that are split at the backslash afterwards. It separates values in
  every character set (PS3.5 6.1.2.5.3), except in a text of one value.
* With NUL: a value with its padding, which is stripped afterwards.
* With the tilde: text in Unicode, where the tilde is a tilde.
"""

from __future__ import annotations

from typing import Final

SAME: Final = rb" -\[\]-}"
"""In a character class: printable ASCII without backslash and tilde."""
SAME_OR_SEPARATOR: Final = rb" -}"
"""In a character class: printable ASCII without the tilde."""
