// Verifies SM2 signatures through a daemon: node verify.js HOST:PORT < items.json
//
// items.json is [{"message": "hex", "signature": "hex, DER", "key": "hex, x || y"}, ...]; one verdict a line comes out.

import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import grpc from "@grpc/grpc-js";
import loader from "@grpc/proto-loader";

const protos = fileURLToPath(new URL("../../../proto", import.meta.url));
const definition = loader.loadSync("verifier/v1/verifier.proto", { includeDirs: [protos], longs: Number, enums: String });
const { verifier } = grpc.loadPackageDefinition(definition);

// All items' values of one field, one behind the other, and where each begins and ends.
function column(values) {
  const offsets = Buffer.alloc(4 * (values.length + 1));
  let end = 0;
  values.forEach((value, index) => {
    end += value.length;
    offsets.writeUInt32LE(end, 4 * (index + 1));
  });
  return { data: Buffer.concat(values), offsets };
}

const bit = (bitmap, index) => (bitmap[index >> 3] >> (index & 7)) & 1;

function verify(client, items, deadlineMs) {
  const field = (name) => column(items.map((item) => Buffer.from(item[name], "hex")));
  const request = {
    requestId: 1,
    items: items.length,
    scheme: {
      algorithm: "ALGORITHM_SM2",
      inputKind: "INPUT_KIND_MESSAGE",
      signatureEncoding: "SIGNATURE_ENCODING_DER_STRICT",
      keyEncoding: "KEY_ENCODING_RAW_XY",
    },
    input: field("message"),
    signature: field("signature"),
    key: field("key"),
    priority: "PRIORITY_BLOCK",
  };
  return new Promise((resolve, reject) => {
    client.verify(request, { deadline: Date.now() + deadlineMs }, (error, answer) => {
      if (error) return reject(error);
      if (answer.requestId !== request.requestId || answer.items !== items.length) {
        return reject(new Error("the answer belongs to another request"));
      }
      resolve(answer);
    });
  });
}

const target = process.argv[2];
const items = JSON.parse(readFileSync(0, "utf8"));
const client = new verifier.v1.Verifier(target, grpc.credentials.createInsecure());
try {
  const answer = await verify(client, items, 60_000);
  items.forEach((_, index) => {
    // An item that is not decided is not invalid: verify it again, here or elsewhere.
    const verdict = !bit(answer.decided, index) ? "undecided" : bit(answer.valid, index) ? "valid" : "invalid";
    console.log(verdict);
  });
  console.error(`served by ${answer.servedBy} on ${answer.device}`);
} finally {
  client.close();
}
