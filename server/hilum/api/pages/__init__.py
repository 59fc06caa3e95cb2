"""Pages for people: plain HTML from the same ledger snapshots as REST. Everything that a page needs lies in this folder."""
