"""The Modality Worklist (PS3.4 K): the priority of an order by its Accession Number."""
