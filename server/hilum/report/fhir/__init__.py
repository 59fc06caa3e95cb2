"""Results as resources of FHIR R4."""
