// A client of the daemon: cuts batches by its limits, tries again while it is full or away, and checks that an answer
// is the answer to what was sent. Copy it into your node.

import { fileURLToPath } from "node:url";
import { setTimeout as sleep } from "node:timers/promises";
import grpc from "@grpc/grpc-js";
import loader from "@grpc/proto-loader";
import { createXXHash3 } from "hash-wasm";

const protos = fileURLToPath(new URL("../../../proto", import.meta.url));
const definition = loader.loadSync("verifier/v1/verifier.proto", { includeDirs: [protos], longs: String, enums: String });
const { verifier } = grpc.loadPackageDefinition(definition);

const { RESOURCE_EXHAUSTED, UNAVAILABLE } = grpc.status;
const CHUNK_BYTES = 2 << 20;
const ATTEMPTS = 6;

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

// XXH3 over data and offsets of each column and over the key table (here empty), each behind its length.
async function columnsDigest(columns) {
  const hash = (await createXXHash3()).init();
  const parts = [...columns.flatMap(({ data, offsets }) => [data, offsets]), Buffer.alloc(0)];
  for (const part of parts) {
    const length = Buffer.alloc(8);
    length.writeBigUInt64LE(BigInt(part.length));
    hash.update(length).update(part);
  }
  return Buffer.from(hash.digest("binary"));
}

const bit = (bitmap, index) => (bitmap[index >> 3] >> (index & 7)) & 1;

export class Verifier {
  // target: "host:port", or several as "ipv4:10.0.0.1:50051,10.0.0.2:50051": calls go round them.
  // tls: { ca, certificate, key } as Buffers with PEM; certificate and key where the daemon asks for them.
  constructor(target, { tls, serverName } = {}) {
    const credentials = tls
      ? grpc.credentials.createSsl(tls.ca, tls.key ?? null, tls.certificate ?? null)
      : grpc.credentials.createInsecure();
    this.client = new verifier.v1.Verifier(target, credentials, {
      "grpc.service_config": JSON.stringify({ loadBalancingConfig: [{ round_robin: {} }] }),
      "grpc.max_receive_message_length": -1,
      ...(serverName && { "grpc.ssl_target_name_override": serverName }),
    });
    this.nextId = 1;
  }

  close() {
    this.client.close();
  }

  // items: [{ input, signature, key }] of Buffers. Gives { verdicts, servedBy }: "valid", "invalid" or "undecided" each.
  // An item that is undecided is not invalid: verify it again, here or elsewhere.
  async verify(scheme, items, { timeoutMs = 30_000, priority = "PRIORITY_POOL" } = {}) {
    const deadline = Date.now() + timeoutMs;
    const limits = await this.#repeat(deadline, () => this.#call("getLimits", {}, deadline));
    const chunks = cut(items, Math.min(limits.preferredItems || limits.maxItems, limits.maxItems));
    const answers = await Promise.all(chunks.map((chunk) => this.#verifyChunk(scheme, chunk, priority, deadline)));
    return {
      verdicts: answers.flatMap((answer) => answer.verdicts),
      servedBy: [...new Set(answers.map((answer) => answer.servedBy))],
    };
  }

  async #verifyChunk(scheme, items, priority, deadline) {
    const [input, signature, key] = ["input", "signature", "key"].map((name) => column(items.map((item) => item[name])));
    const request = { items: items.length, scheme, input, signature, key, priority };
    const sent = await columnsDigest([input, signature, key]);
    return this.#repeat(deadline, async () => {
      request.requestId = String(this.nextId++);
      const answer = await this.#call("verify", request, deadline);
      if (answer.requestId !== request.requestId || answer.items !== items.length || !sent.equals(answer.columnsDigest)) {
        throw new Error("the answer belongs to another request");
      }
      const verdict = (_, i) => (!bit(answer.decided, i) ? "undecided" : bit(answer.valid, i) ? "valid" : "invalid");
      return { verdicts: items.map(verdict), servedBy: answer.servedBy };
    });
  }

  // Tries again while the daemon is full or away.
  async #repeat(deadline, ask) {
    for (let attempt = 1; ; attempt++) {
      try {
        return await ask();
      } catch (error) {
        const wait = Math.random() * Math.min(2000, 50 * 2 ** attempt); // all callers at once would fill it again
        const passing = [RESOURCE_EXHAUSTED, UNAVAILABLE].includes(error.code);
        if (!passing || attempt === ATTEMPTS || Date.now() + wait > deadline) throw error;
        await sleep(wait);
      }
    }
  }

  #call(method, request, deadline) {
    return new Promise((resolve, reject) => {
      this.client[method](request, { deadline }, (error, answer) => (error ? reject(error) : resolve(answer)));
    });
  }
}

function cut(items, mostItems) {
  const chunks = [[]];
  let bytes = 0;
  for (const item of items) {
    const size = item.input.length + item.signature.length + item.key.length + 12;
    if (chunks.at(-1).length === mostItems || (bytes + size > CHUNK_BYTES && bytes)) {
      chunks.push([]);
      bytes = 0;
    }
    chunks.at(-1).push(item);
    bytes += size;
  }
  return chunks;
}
