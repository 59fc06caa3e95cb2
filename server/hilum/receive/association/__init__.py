"""The acceptor of associations (PS3.8): admission, TLS, negotiation and limits."""
