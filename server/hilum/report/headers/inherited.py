"""The attributes of an image that documents use.

For a report they are its patient and study, the device, and the measures. All other elements of a
header are neither decoded nor checked, so an image with a fault there still gives a report.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from pydicom.datadict import tag_for_keyword

# Patient, Clinical Trial Subject, General Study, Patient Study and Clinical Trial Study modules
# (PS3.3 C.7.1, C.7.2), as highdicom copies them; a test compares the two.
INHERITED: Final = frozenset(
    [
        "AccessionNumber",
        "AdditionalPatientHistory",
        "AdmissionID",
        "AdmittingDiagnosesCodeSequence",
        "AdmittingDiagnosesDescription",
        "Allergies",
        "BreedRegistrationSequence",
        "ClinicalTrialProtocolEthicsCommitteeApprovalNumber",
        "ClinicalTrialProtocolEthicsCommitteeName",
        "ClinicalTrialProtocolID",
        "ClinicalTrialProtocolName",
        "ClinicalTrialSiteID",
        "ClinicalTrialSiteName",
        "ClinicalTrialSponsorName",
        "ClinicalTrialSubjectID",
        "ClinicalTrialSubjectReadingID",
        "ClinicalTrialTimePointDescription",
        "ClinicalTrialTimePointID",
        "ClinicalTrialTimePointTypeCodeSequence",
        "ConsentForClinicalTrialUseSequence",
        "ConsultingPhysicianIdentificationSequence",
        "ConsultingPhysicianName",
        "DeidentificationMethod",
        "DeidentificationMethodCodeSequence",
        "EthnicGroupCodeSequence",
        "GeneticModificationsSequence",
        "GroupOfPatientsIdentificationSequence",
        "IssuerOfAccessionNumberSequence",
        "IssuerOfAdmissionIDSequence",
        "IssuerOfClinicalTrialProtocolID",
        "IssuerOfClinicalTrialSiteID",
        "IssuerOfClinicalTrialSubjectID",
        "IssuerOfClinicalTrialSubjectReadingID",
        "IssuerOfClinicalTrialTimePointID",
        "IssuerOfPatientID",
        "IssuerOfPatientIDQualifiersSequence",
        "IssuerOfServiceEpisodeIDSequence",
        "LastMenstrualDate",
        "LongitudinalTemporalEventType",
        "LongitudinalTemporalOffsetFromEvent",
        "MeasuredAPDimension",
        "MeasuredLateralDimension",
        "MedicalAlerts",
        "NameOfPhysiciansReadingStudy",
        "Occupation",
        "OtherClinicalTrialProtocolIDsSequence",
        "OtherPatientIDsSequence",
        "OtherPatientNames",
        "PatientAge",
        "PatientAlternativeCalendar",
        "PatientBirthDate",
        "PatientBirthDateInAlternativeCalendar",
        "PatientBirthTime",
        "PatientBodyMassIndex",
        "PatientBreedCodeSequence",
        "PatientBreedDescription",
        "PatientComments",
        "PatientDeathDateInAlternativeCalendar",
        "PatientID",
        "PatientIdentityRemoved",
        "PatientName",
        "PatientSex",
        "PatientSexNeutered",
        "PatientSize",
        "PatientSizeCodeSequence",
        "PatientSpeciesCodeSequence",
        "PatientSpeciesDescription",
        "PatientState",
        "PatientWeight",
        "PhysiciansOfRecord",
        "PhysiciansOfRecordIdentificationSequence",
        "PhysiciansReadingStudyIdentificationSequence",
        "PregnancyStatus",
        "ProcedureCodeSequence",
        "QualityControlSubject",
        "ReasonForPerformedProcedureCodeSequence",
        "ReasonForVisit",
        "ReasonForVisitCodeSequence",
        "ReferencedPatientPhotoSequence",
        "ReferencedPatientSequence",
        "ReferencedStudySequence",
        "ReferringPhysicianIdentificationSequence",
        "ReferringPhysicianName",
        "RequestingService",
        "RequestingServiceCodeSequence",
        "ResponsibleOrganization",
        "ResponsiblePerson",
        "ResponsiblePersonRole",
        "ServiceEpisodeDescription",
        "ServiceEpisodeID",
        "SmokingStatus",
        "SourcePatientGroupIdentificationSequence",
        "StrainAdditionalInformation",
        "StrainCodeSequence",
        "StrainDescription",
        "StrainNomenclature",
        "StrainStockSequence",
        "StudyDate",
        "StudyDescription",
        "StudyID",
        "StudyInstanceUID",
        "StudyTime",
        "TypeOfPatientID",
    ]
)
# The device in Contributing Equipment Sequence (PS3.3 C.12.1.1.5).
EQUIPMENT: Final = frozenset(
    [
        "Manufacturer",
        "ManufacturerModelName",
        "SoftwareVersions",
        "DeviceSerialNumber",
        "InstitutionName",
        "InstitutionalDepartmentName",
        "InstitutionAddress",
        "StationName",
        "AcquisitionDateTime",
    ]
)
# The attributes of the image library (TID 1602, 1603), and of lossy compression.
DESCRIPTORS: Final = frozenset(
    ["Modality", "Rows", "Columns", "PatientOrientation", "ImagerPixelSpacing"]
)
_LOSSY: Final = frozenset(
    ["LossyImageCompression", "LossyImageCompressionRatio", "LossyImageCompressionMethod"]
)
# They find a patient or an order in another system. Shortened or mended they would find another
# one, or nothing.
IDENTIFIERS: Final = frozenset(
    {
        "PatientID",
        "IssuerOfPatientID",
        "AccessionNumber",
        "StudyID",
        "OtherPatientIDs",
        "AdmissionID",
    }
)


def tags(keywords: Iterable[str]) -> frozenset[int]:
    """Tags of these attributes, which PS3.6 knows."""
    return frozenset(int(tag_for_keyword(keyword) or 0) for keyword in keywords)


# Of the image that gives a document its patient and study; of all others.
OF_FIRST: Final = tags(
    {*INHERITED, *EQUIPMENT, *DESCRIPTORS, *_LOSSY, *IDENTIFIERS, "TimezoneOffsetFromUTC"}
)
OF_OTHERS: Final = tags({*DESCRIPTORS, *IDENTIFIERS})
