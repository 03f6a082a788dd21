// ---- what every model has: faults, limits, the device, the weights ----

const SIZE_MAX = 2n ** 47n;
const GROUPS_MAX = 65535;
const PLANS = 4; // sets of input shapes whose buffers are kept
const ALIGN = 256; // of what is bound
const LONG = 20; // milliseconds of a launch that is timed once

export const ARRAYS = {
  f32: Float32Array, f64: Float64Array, f16: Uint16Array, bf16: Uint16Array, i64: BigInt64Array, u64: BigUint64Array,
  i32: Int32Array, u32: Uint32Array, i16: Int16Array, u16: Uint16Array, i8: Int8Array, u8: Uint8Array, bool: Uint8Array,
};
const ALSO = { f16: globalThis.Float16Array ? [Float16Array] : [], u8: [Uint8ClampedArray] };

/** What went wrong: `code` is "no-webgpu", "no-adapter", "limit", "input", "weights", "state", "lost" or "gpu". */
export class ModelError extends Error {
  constructor(code, message) {
    super(message);
    this.name = "ModelError";
    this.code = code;
  }
}

const fail = (code, message) => {
  throw new ModelError(code, message);
};
const roundUp = (bytes, to) => Math.ceil(bytes / to) * to;
const count = (dims) => dims.reduce((n, d) => n * d, 1);
const shown = (dims) => `[${dims.join(", ")}]`;
const quoted = (name) => JSON.stringify(name);

/** A size of a run as a number; it is computed exactly. */
function sizeOf(size) {
  if (size < 0 || size > SIZE_MAX) fail("input", "inputs of these shapes need a size that is negative or above 2^47");
  return Number(size);
}

function needLimit({ limits }, name, least, what) {
  if (limits[name] < least) fail("limit", `${what}, in bytes, needs ${least}, and this device has ${limits[name]} (${name})`);
}

/** A device with large buffers; kernels need no more than each adapter has. */
async function openDevice() {
  const gpu = globalThis.navigator?.gpu;
  if (!gpu)
    fail("no-webgpu", "there is no WebGPU here: it needs a recent browser, and a page from https: or from this machine");
  const adapter = await gpu.requestAdapter({ powerPreference: "high-performance" });
  if (!adapter) fail("no-adapter", "the browser offers WebGPU, but no adapter: its graphics driver may be switched off");
  const names = ["maxBufferSize", "maxStorageBufferBindingSize"];
  const requiredLimits = Object.fromEntries(names.map((name) => [name, adapter.limits[name]]));
  const requiredFeatures = ["subgroups"].filter((name) => adapter.features?.has(name));
  return adapter.requestDevice({ requiredLimits, requiredFeatures });
}

// ---- weights ----

async function download(url, total, progress) {
  const answer = await fetch(url).catch((error) => fail("weights", `cannot fetch ${url}: ${error.message}`));
  if (!answer.ok) fail("weights", `cannot fetch ${url}: ${answer.status} ${answer.statusText}`);
  const bytes = new Uint8Array(total);
  const reader = answer.body.getReader();
  let loaded = 0;
  for (;;) {
    const { done, value } = await reader.read().catch((error) => {
      fail("weights", `${url} broke off after ${loaded} of ${total} bytes: ${error.message}`);
    });
    if (done) break;
    if (loaded + value.length > total) fail("weights", `${url} is longer than the ${total} bytes of this model's weights`);
    bytes.set(value, loaded);
    loaded += value.length;
    progress(loaded);
  }
  if (loaded < total) fail("weights", `${url} is truncated: ${loaded} of ${total} bytes`);
  return bytes;
}

async function checkHash(bytes, sha256, url) {
  const digest = new Uint8Array(await crypto.subtle.digest("SHA-256", bytes));
  const found = Array.from(digest, (b) => b.toString(16).padStart(2, "0")).join("");
  if (found !== sha256) fail("weights", `${url} is not what this model was compiled with: its hash is ${found}, not ${sha256}`);
}

/** The weights file, kept by its hash where the browser has a cache. */
async function fetchWeights(url, { file, sha256 }, progress) {
  const key = new URL(url);
  key.search = `?sha256=${sha256}`;
  const cache = await globalThis.caches?.open("torshc").catch(() => null);
  const kept = await cache?.match(key).catch(() => null);
  if (kept) {
    const bytes = new Uint8Array(await kept.arrayBuffer());
    progress(bytes.length);
    if (bytes.length === file) return bytes;
  }
  const bytes = await download(url, file, progress);
  await checkHash(bytes, sha256, url);
  await cache?.delete(key, { ignoreSearch: true }).catch(() => null); // what lay there before
  await cache?.put(key, new Response(bytes)).catch(() => null); // no space left: it is fetched again
  return bytes;
}
