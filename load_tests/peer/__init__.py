"""The peer: what somebody would build today instead of Hilum.

Orthanc receives, two Python workers read and report; `docs/figures/peer.md`.
"""
