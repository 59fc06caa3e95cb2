"""Value Representations by the width of their length field (PS3.5 7.1.2). Torch-free."""

from __future__ import annotations

from typing import Final

SHORT_VRS: Final = frozenset(
    b"AE AS AT CS DA DS DT FL FD IS LO LT PN SH SL SS ST TM UI UL US".split()
)
"""Those with a length of 16 bits."""
LONG_VRS: Final = frozenset(b"OB OD OF OL OV OW SQ SV UC UN UR UT UV".split())
"""Those with a length of 32 bits, after two reserved bytes."""
# The standard gives future VRs a length of 32 bits. pydicom reads one of 16 bits there and finds
# none of the elements behind. So an unknown VR is in neither table and each reader refuses it.
