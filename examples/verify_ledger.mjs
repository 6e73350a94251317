// Verify an exported ledger, with Node's standard library alone: chain, releases and signature.
//
//   meanstream ledger export --store state.db --to ledger.jsonl
//   node verify_ledger.mjs ledger.jsonl [--signature head.json --signer signing.key.pub]
//                          [--releases releases.jsonl]
//
// docs/reference/formats.md describes the formats. Exit code 1: a fault; 2: wrong arguments.
import { createHash, createPublicKey, verify } from "node:crypto";
import { closeSync, openSync, readFileSync, readSync } from "node:fs";
import { parseArgs } from "node:util";

const SEGMENT = 4096; // rows after which the chain takes a step
const START = Buffer.alloc(32); // the chain's value before the first row
const ABOUT = "meanstream ledger head\n"; // before every head that is signed
const USAGE = "usage: verify_ledger.mjs LEDGER [--signature HEAD --signer KEY] [--releases FILE]";
const newHashes = () => ["names", "outputs"].map(() => createHash("sha256"));

class Fault extends Error {}
function need(holds, message) {
  if (!holds) throw new Fault(message);
}

/** Lines of a file, as bytes without their ends. A line ends with the byte 10 alone. */
function* linesOf(path) {
  const file = openSync(path, "r");
  const block = Buffer.alloc(1 << 20);
  let rest = Buffer.alloc(0);
  try {
    for (let size; (size = readSync(file, block)) > 0; ) {
      rest = Buffer.concat([rest, block.subarray(0, size)]);
      for (let end; (end = rest.indexOf(10)) >= 0; rest = rest.subarray(end + 1)) {
        yield rest.subarray(0, end);
      }
    }
  } finally {
    closeSync(file);
  }
  need(rest.length === 0, `${path} must end with a whole line`);
}

function parsed(text, what) {
  let value = null;
  try { value = JSON.parse(text); } catch {} // an unreadable text is no object
  need(value?.constructor === Object, `${what} must be a JSON object`);
  return value;
}

function bytesOf(text, size, what) {
  const hex = typeof text === "string" && text.length === 2 * size && /^[0-9a-f]+$/.test(text);
  need(hex, `${what} must be ${size} bytes in hexadecimal digits`);
  return Buffer.from(text, "hex");
}

/** The chain of hashes, and its values at the rows where they were exported. */
class Chain {
  rows = 0;
  value = START;
  marks = new Map([[0, START]]);
  #inSegment = 0;
  #hashes = newHashes();

  add(row) {
    const what = `row ${this.rows + 1}`;
    need(row.seq === this.rows + 1, `${what} must be the next one, got ${row.seq}`);
    const text = typeof row.agent === "string" && typeof row.output === "string";
    need(text, `${what} must have an agent and an output`);

    // Values of the chain stand after whole segments and after the last row, nowhere else.
    need(this.#inSegment === this.rows % SEGMENT, `${what} must follow a whole segment`);
    [row.agent, row.output].forEach((part, i) => this.#hashes[i].update(part, "utf8"));
    this.#inSegment += 1;
    this.rows += 1;
  }

  /** Compare with an exported value: SHA-256 of the one before and of three digests of rows. */
  mark(mark) {
    const what = `the chain at row ${mark.rows}`;
    const follows = mark.rows === this.rows && this.#inSegment > 0;
    need(follows, `${what} must come after its rows, got it after row ${this.rows}`);
    const numbers = bytesOf(mark.numbers, 32, `numbers of ${what}`);
    const parts = [this.value, numbers, ...this.#hashes.map((hash) => hash.digest())];
    const value = createHash("sha256").update(Buffer.concat(parts)).digest();
    const first = this.rows - this.#inSegment + 1;
    const same = value.equals(bytesOf(mark.chain, 32, what));
    need(same, `${what} must follow from rows ${first} to ${this.rows}, got another value`);

    this.marks.set(this.rows, (this.value = value));
    this.#inSegment = 0;
    this.#hashes = newHashes();
  }
}

/** A name as it stands in a release id: percent-encoded but for letters, digits and _.~- */
function encoded(name) {
  const hex = (c) => `%${c.charCodeAt(0).toString(16).toUpperCase()}`;
  return encodeURIComponent(name).replace(/[!'()*]/g, hex);
}

/** Releases of agents: each is the next one of its agent, and all are under one promise. */
class Releases {
  counts = new Map();
  #prefix;
  #promise = null;

  constructor(deployment) {
    this.#prefix = deployment === null ? "" : `${encoded(deployment)}/`;
  }

  add(row) {
    const what = `the release in row ${row.seq}`;
    const release = parsed(row.output, what);
    if (!("release_id" in release) || "reader" in release) return; // of rounds, of pairs
    const index = (this.counts.get(row.agent) ?? 0) + 1;
    const promise = JSON.stringify([release.epsilon, release.delta, release.mode]);
    this.#promise ??= promise;
    const release_id = `${this.#prefix}${encoded(row.agent)}:${index}`;
    const expected = { schema_version: 1, agent: row.agent, index, release_id };
    for (const [field, value] of Object.entries(expected)) {
      need(release[field] === value, `${what} must have ${field} ${value}, got ${release[field]}`);
    }
    need(promise === this.#promise, `${what} must have one promise with all, got ${promise}`);
    const whole = Number.isInteger(release.n) && Number.isInteger(release.total);
    need(whole && release.n >= 1, `${what} must have whole numbers n and total`);
    const finite = Number.isFinite(release.mean) && Number.isFinite(release.noise_variance);
    need(finite && release.noise_variance >= 0, `${what} must have a mean and its noise`);
    need(!Number.isNaN(Date.parse(release.time)), `${what} must have a time`);
    this.counts.set(row.agent, index);
  }
}

/** JSON as it is signed: keys in order, no spaces, ASCII alone. */
function canonical(values) {
  const sorted = Object.fromEntries(Object.entries(values).sort(([a], [b]) => (a < b ? -1 : 1)));
  const escaped = (c) => `\\u${c.charCodeAt(0).toString(16).padStart(4, "0")}`;
  return JSON.stringify(sorted).replace(/[^ -~]/g, escaped);
}

/** Check a signed head; give the number of rows that it stands for. */
function signedRows(options, deployment, chain) {
  const { signature, ...signed } = parsed(readFileSync(options.signature), "the signed head");
  need(signed.version === 1, `the signed head must have version 1, got ${signed.version}`);
  const key = createPublicKey(readFileSync(options.signer));
  const bytes = bytesOf(signature, 64, "the signature");
  need(key.asymmetricKeyType === "ed25519", "the signer must be an Ed25519 key");
  const valid = verify(null, Buffer.from(ABOUT + canonical(signed)), key, bytes);
  need(valid, "the signature must be of the signer's key, got another one");
  const { deployment: name, rows } = signed;
  need(name === deployment, `the signature must be about ${deployment}, got ${name}`);
  need(rows <= chain.rows, `the ledger must have the ${rows} signed rows, got ${chain.rows}`);
  const value = chain.marks.get(rows);
  need(value, `the export must have the chain at row ${rows}: export it with --rows ${rows}`);
  const same = value.equals(bytesOf(signed.head, 32, "the signed head"));
  need(same, `the ledger must have the signed head at row ${rows}, got another one`);
  return rows;
}

function verifyLedger(path, options) {
  const lines = linesOf(path);
  const head = parsed(lines.next().value ?? "", "the first line");
  const readable = head.format === "meanstream ledger" && head.version === 1;
  need(readable, "the file must be an export of a ledger, version 1");
  const chain = new Chain();
  const releases = new Releases(head.deployment);
  const [outputs, agents] = [new Set(), new Set()];
  for (const line of lines) {
    const record = parsed(line, "a line");
    if ("chain" in record) {
      chain.mark(record);
    } else {
      chain.add(record);
      releases.add(record);
      agents.add(record.agent);
      if (options.releases) outputs.add(record.output);
    }
  }
  const whole = chain.rows === head.rows && chain.marks.has(chain.rows);
  need(whole, `the export must end with the chain at row ${head.rows}, got row ${chain.rows}`);
  for (const line of options.releases ? linesOf(options.releases) : []) {
    const known = outputs.has(line.toString());
    need(known, `a released line must be in the ledger, got ${line.toString().slice(0, 80)}`);
  }
  const signed = options.signature ? signedRows(options, head.deployment, chain) : "none";
  const value = chain.value.toString("hex");
  const checked = [...releases.counts.values()].reduce((sum, count) => sum + count, 0);
  return { rows: chain.rows, agents: agents.size, head: value, releases: checked, signed };
}

try {
  const text = { type: "string" };
  const options = { signature: text, signer: text, releases: text };
  const { values, positionals } = parseArgs({ allowPositionals: true, options });
  const together = !values.signature === !values.signer;
  if (positionals.length !== 1 || !together) throw new TypeError(USAGE);
  for (const [name, value] of Object.entries(verifyLedger(positionals[0], values))) {
    console.log(`${name.padEnd(9)}${value}`);
  }
} catch (error) {
  console.error(error.message);
  process.exitCode = error instanceof Fault ? 1 : 2;
}
