// Validate resources by npm's fhir, which has the profiles of R4.
// Reads a JSON array of resources, and writes an array: what is wrong with each, empty for nothing.
const { createRequire } = require("module");
const { readFileSync } = require("fs");
const load = createRequire(process.argv[2] + "/");
const { Fhir } = load("fhir");
const fhir = new Fhir();
const problem = (resource) => {
  const found = fhir.validate(resource, { errorOnUnexpected: true });
  if (found.valid) return "";
  const errors = found.messages.filter((item) => item.severity === "error" || item.severity === "fatal");
  return errors.map((item) => item.location + ": " + item.message).join("; ") || "not valid";
};
process.stdout.write(JSON.stringify(JSON.parse(readFileSync(0, "utf-8")).map(problem)));
