"""The result as an HL7 v2 message: ORU^R01 of HL7 2.5.1."""
