// Verifies SM2 signatures through a daemon:
//
//   node verify.js [--ca FILE] [--cert FILE --key FILE] [--server-name NAME] HOST:PORT < items.json
//
// items.json is [{"message": "hex", "signature": "hex, DER", "key": "hex, x || y"}, ...]; one verdict a line comes out.
// --ca: speak TLS with a daemon whose certificate this authority signed; --cert and --key: show one's own.

import { readFileSync } from "node:fs";
import { parseArgs } from "node:util";
import { Verifier } from "./verifier.js";

const names = ["ca", "cert", "key", "server-name"];
const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: Object.fromEntries(names.map((name) => [name, { type: "string" }])),
});
if (positionals.length !== 1 || !values.cert !== !values.key || (values.cert && !values.ca)) {
  console.error("node verify.js [--ca FILE] [--cert FILE --key FILE] [--server-name NAME] HOST:PORT < items.json");
  process.exit(2);
}
const pem = (file) => file && readFileSync(file);
const tls = values.ca && { ca: pem(values.ca), certificate: pem(values.cert), key: pem(values.key) };

// What this chain signs, in the contract's words.
const scheme = {
  algorithm: "ALGORITHM_SM2",
  inputKind: "INPUT_KIND_MESSAGE",
  signatureEncoding: "SIGNATURE_ENCODING_DER_STRICT",
  keyEncoding: "KEY_ENCODING_RAW_XY",
};
const items = JSON.parse(readFileSync(0, "utf8")).map(({ message, signature, key }) => ({
  input: Buffer.from(message, "hex"),
  signature: Buffer.from(signature, "hex"),
  key: Buffer.from(key, "hex"),
}));

const client = new Verifier(positionals[0], { tls, serverName: values["server-name"] });
try {
  const { verdicts, servedBy } = await client.verify(scheme, items, { priority: "PRIORITY_BLOCK" });
  verdicts.forEach((verdict) => console.log(verdict));
  console.error(`served by ${servedBy.join(", ")}`);
} catch (error) {
  console.error(`no verdicts: ${error.details ?? error.message}`);
  process.exitCode = 1;
} finally {
  client.close();
}
