import com.pixelmed.validate.DicomSRValidator;

/** PixelMed's validator, its rules compiled once for all reports: its own program takes one report and compiles them each time. */
class ValidateReports {
    /** Before each verdict a line of its own: this, a blank and the report's number. The options are those of PixelMed's program. */
    static final String MARK = "== report";

    public static void main(String[] reports) throws Exception {
        System.setErr(System.out); // the words of the rules' interpreter belong to the report that it is at
        DicomSRValidator validator = new DicomSRValidator();
        for (int number = 0; number < reports.length; number++) {
            System.out.println(MARK + " " + number);
            try {
                boolean describe = false, matchCase = true, ambiguous = false, order = true, templateId = true;
                System.out.print(validator.validate(reports[number], describe, matchCase, ambiguous, order, templateId));
            } catch (Exception error) {
                error.printStackTrace(System.out);
            }
        }
    }
}
