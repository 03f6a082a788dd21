// ---- what a model that trains keeps from step to step ----

const LENGTH = 8; // bytes of a file's length of its header, and of its digest

/** FNV-1a of 64 bits, as two words, the low one first. */
function digestOf(bytes) {
  const PRIME = 0x1b3; // of 2^40 + 0x1b3
  let [low, high] = [0x84222325, 0xcbf29ce4];
  for (const byte of bytes) {
    low = (low ^ byte) >>> 0;
    const product = low * PRIME;
    high = (Math.imul(high, PRIME) + Math.floor(product / 2 ** 32) + (low << 8)) >>> 0;
    low = product >>> 0;
  }
  return [low, high];
}

/** The weights that are trained, and what the optimizer keeps of them, in memory of the device. */
class States {
  #device;
  #after;

  /** Name, dtype and dims of each, and whether it is a weight. */
  ports = program.states.map(({ name, dtype, dims, trained }) => ({ name, dtype, dims, trained }));

  /**
   * @param file the weights file, which has their first contents.
   * @param after queues work behind the steps that were asked for before it.
   */
  constructor(device, file, after) {
    const { STORAGE, COPY_SRC, COPY_DST } = GPUBufferUsage;
    needLimit(device, "maxBufferSize", program.stateBytes, "the buffer of the states");
    this.#device = device;
    this.#after = after;
    this.buffer = device.createBuffer({ size: roundUp(program.stateBytes, ALIGN), usage: STORAGE | COPY_SRC | COPY_DST });
    for (const { first, offset, bytes } of program.states)
      if (first >= 0 && bytes) device.queue.writeBuffer(this.buffer, offset, file, first, bytes);
  }

  /** A copy of one, as an array of its type. */
  read(name) {
    return this.#after(async () => {
      const { dtype, offset, bytes } = this.#find(name);
      return new ARRAYS[dtype]((await this.download()).slice(offset, offset + bytes));
    });
  }

  /** New contents for one: an array of its type. */
  write(name, data) {
    return this.#after(async () => {
      const { dtype, dims, offset, bytes } = this.#find(name);
      if (data?.constructor !== ARRAYS[dtype] || data.byteLength !== bytes)
        fail("input", `state ${quoted(name)} is ${dtype} ${shown(dims)}: give a ${ARRAYS[dtype].name} of ${count(dims)} elements`);
      this.#device.queue.writeBuffer(this.buffer, offset, data);
    });
  }

  /** All of them as the bytes of a file, which libraries of the same step for other targets read too. */
  save() {
    return this.#after(async () => {
      const all = await this.download();
      const header = new TextEncoder().encode(program.stateHeader);
      const file = new Uint8Array(2 * LENGTH + header.length + program.states.reduce((n, { bytes }) => n + bytes, 0));
      const view = new DataView(file.buffer);
      view.setUint32(0, header.length, true);
      file.set(header, LENGTH);
      const data = LENGTH + header.length + LENGTH;
      let at = data;
      for (const { offset, bytes } of program.states) {
        file.set(new Uint8Array(all, offset, bytes), at);
        at += bytes;
      }
      digestOf(file.subarray(data)).forEach((word, k) => view.setUint32(data - LENGTH + 4 * k, word, true));
      return file;
    });
  }

  /** The contents of such a file; where it is damaged or of another model nothing changes. */
  load(file) {
    return this.#after(async () => {
      const bytes = new Uint8Array(file);
      const header = new TextEncoder().encode(program.stateHeader);
      const data = LENGTH + header.length + LENGTH;
      const want = program.states.reduce((n, state) => n + state.bytes, data);
      if (!header.every((byte, k) => bytes[LENGTH + k] === byte)) fail("state", "the file is not of this model and optimizer");
      if (bytes.length !== want) fail("state", `the file has ${bytes.length} bytes; expected ${want}`);
      const view = new DataView(bytes.buffer, bytes.byteOffset);
      const found = digestOf(bytes.subarray(data));
      if (found.some((word, k) => word !== view.getUint32(data - LENGTH + 4 * k, true)))
        fail("state", "the file is damaged: its digest is not that of its contents");
      let at = data;
      for (const state of program.states) {
        if (state.bytes) this.#device.queue.writeBuffer(this.buffer, state.offset, bytes, at, state.bytes);
        at += state.bytes;
      }
    });
  }

  /** All memory of the states, as an ArrayBuffer. */
  async download() {
    const size = this.buffer.size;
    const staging = this.#device.createBuffer({ size, usage: GPUBufferUsage.MAP_READ | GPUBufferUsage.COPY_DST });
    const encoder = this.#device.createCommandEncoder();
    encoder.copyBufferToBuffer(this.buffer, 0, staging, 0, size);
    this.#device.queue.submit([encoder.finish()]);
    await staging.mapAsync(GPUMapMode.READ);
    const found = staging.getMappedRange().slice(0);
    staging.destroy();
    return found;
  }

  /** Puts back what `download` gave. */
  upload(all) {
    this.#device.queue.writeBuffer(this.buffer, 0, all);
  }

  #find(name) {
    const found = program.states.find((state) => state.name === name);
    return found ?? fail("input", `there is no state ${quoted(name)}; the states are ${program.states.map((s) => quoted(s.name)).join(", ")}`);
  }

  destroy() {
    this.buffer.destroy();
  }
}
