// ---- inputs ----

/** Data and dimensions of what a caller gives for an input. */
function readInput(port, given) {
  const name = `input ${quoted(port.name)}`;
  const { data, dims } = given?.dims ? given : { data: given?.data ?? given, dims: null };
  const kinds = [ARRAYS[port.dtype], ...(ALSO[port.dtype] ?? [])];
  const onDevice = typeof globalThis.GPUBuffer === "function" && data instanceof GPUBuffer;
  if (!onDevice && !kinds.includes(data?.constructor)) {
    const what = data === null || data === undefined ? "nothing" : (data.constructor?.name ?? typeof data);
    fail("input", `${name} is ${port.dtype}: give a ${kinds[0].name} or a GPUBuffer, not ${what}`);
  }
  const size = onDevice ? null : data.length;
  const known = dims ? Array.from(dims) : dimsFor(port, size, name);
  if (known.length !== port.dims.length || !known.every((d) => Number.isSafeInteger(d) && d >= 0))
    fail("input", `${name} has dimensions ${shown(known)}; expected ${shown(port.dims)}`);
  if (size !== null && count(known) !== size) fail("input", `${name} has ${size} elements, and dimensions ${shown(known)}`);
  const bytes = count(known) * ARRAYS[port.dtype].BYTES_PER_ELEMENT;
  if (onDevice && data.size < roundUp(bytes, 4)) fail("input", `${name} is a buffer of ${data.size} bytes; ${shown(known)} needs ${bytes}`);
  if (onDevice && !(data.usage & GPUBufferUsage.COPY_SRC)) fail("input", `${name} is a buffer without the usage COPY_SRC`);
  return { data, dims: known, bytes, onDevice };
}

/** The dimensions of data that comes without: where they follow from its length. */
function dimsFor(port, size, name) {
  const free = port.dims.filter((d) => typeof d !== "number");
  const rest = count(port.dims.filter((d) => typeof d === "number"));
  if (free.length > 1 || (free.length && (size === null || rest === 0 || size % rest)))
    fail("input", `${name} is ${shown(port.dims)}: give { data, dims }`);
  return port.dims.map((d) => (typeof d === "number" ? d : size / rest));
}

function bindSymbols(program, given) {
  return program.symbols.map((symbol) => {
    const { data, dims, onDevice } = given[symbol.input];
    const name = quoted(program.inputs[symbol.input].name);
    const what = symbol.kind === "dim" ? `dimension ${symbol.dim} of input ${name}` : `element ${symbol.dim} of input ${name}`;
    if (symbol.kind !== "dim" && onDevice) fail("input", `input ${name} holds sizes: give it as a typed array`);
    const value = BigInt(symbol.kind === "dim" ? dims[symbol.dim] : data[symbol.dim]);
    const moved = least(most(value, BigInt(symbol.min)), BigInt(symbol.max));
    if (moved !== value && symbol.kind !== "clamped")
      fail("input", `${what} is ${value}, which is not in ${symbol.min} .. ${symbol.max}`);
    return moved;
  });
}

function checkShapes(program, at, given) {
  for (const [text, left, right] of at.conditions)
    if (BigInt(left) !== BigInt(right)) fail("input", `sizes do not fit: ${text}, but these are ${left} and ${right}`);
  at.inputs.forEach((dims, k) => {
    const want = dims.map(sizeOf);
    if (want.some((d, j) => d !== given[k].dims[j]))
      fail("input", `input ${quoted(program.inputs[k].name)} has dimensions ${shown(given[k].dims)}; expected ${shown(want)}`);
  });
  at.extents.forEach(sizeOf);
}

// ---- runs ----

/** The kernels, compiled, each with the layout of what is bound. */
async function compileKernels(device, program, progress) {
  const names = Object.keys(program.kernels);
  let done = 0;
  const made = await Promise.all(
    names.map(async (name) => {
      const { text, access, sized } = program.kernels[name];
      const kinds = [...access, ...(sized ? ["uniform"] : [])];
      const entries = kinds.map((type, binding) => ({ binding, visibility: GPUShaderStage.COMPUTE, buffer: { type } }));
      const layout = device.createBindGroupLayout({ entries: entries.filter((entry) => entry.buffer.type) });
      const pipeline = await device
        .createComputePipelineAsync({
          label: name,
          layout: device.createPipelineLayout({ bindGroupLayouts: [layout] }),
          compute: { module: device.createShaderModule({ label: name, code: text }), entryPoint: "main" },
        })
        .catch((error) => fail("gpu", `kernel ${name} is not accepted: ${error.message}`));
      progress((done += 1), names.length);
      return [name, { layout, pipeline }];
    }),
  );
  return new Map(made);
}

/** The buffers and launches of runs with inputs of certain shapes. */
class Plan {
  #buffers = [];

  constructor(model, at) {
    this.at = at;
    this.model = model;
    this.arenaBytes = sizeOf(at.arena);
    const U = GPUBufferUsage;
    const ports = (kind) =>
      model.program[kind].map((port, k) => {
        const dims = at[kind][k].map(sizeOf);
        const bytes = count(dims) * ARRAYS[port.dtype].BYTES_PER_ELEMENT;
        const what = `${kind.slice(0, -1)} ${quoted(port.name)}`;
        return { port, dims, bytes, buffer: this.#buffer(bytes, U.STORAGE | U.COPY_SRC | U.COPY_DST, what) };
      });
    this.inputs = ports("inputs");
    this.outputs = ports("outputs");
    let end = 0;
    for (const out of this.outputs) {
      out.at = end;
      end += roundUp(out.bytes, 8);
    }
    this.staging = this.#buffer(end, U.MAP_READ | U.COPY_DST, "the outputs together");
    this.params = this.#buffer(ALIGN * at.steps.length, U.UNIFORM | U.COPY_DST, "the kernels' sizes");
    this.spare = { storage: null, "read-only-storage": null }; // what stands for tensors without elements
    for (const type of Object.keys(this.spare)) this.spare[type] = this.#buffer(ALIGN * 64, U.STORAGE, "empty tensors");
    this.#writeParams();
  }

  #buffer(bytes, usage, what) {
    const size = Math.max(ALIGN, roundUp(bytes, ALIGN));
    needLimits(this.model.device.limits, [["maxBufferSize", size, `${what}, in bytes,`]], "this device");
    const buffer = this.model.device.createBuffer({ size, usage });
    this.#buffers.push(buffer);
    return buffer;
  }

  /** The number of blocks and the sizes that kernels are given. */
  #writeParams() {
    const words = new Int32Array((ALIGN / 4) * this.at.steps.length);
    this.at.steps.forEach(([tasks, , dims], k) => {
      if (1 + dims.length > ALIGN / 4) fail("limit", `step ${k} has ${dims.length} sizes, more than a kernel can be given`);
      [tasks, ...dims].forEach((value, j) => {
        if (BigInt.asIntN(32, BigInt(value)) !== BigInt(value))
          fail("limit", `size ${value} of step ${k} (${this.model.program.steps[k].kernel}) does not fit 32 bits`);
        words[(ALIGN / 4) * k + j] = Number(value);
      });
    });
    this.model.device.queue.writeBuffer(this.params, 0, words);
  }

  /** Makes the launches for an arena. */
  bind(arena) {
    if (this.arena === arena) return;
    this.arena = arena;
    this.steps = this.at.steps.map((step, k) => this.#launch(step, k)).filter((launch) => launch.blocks > 0);
  }

  #launch([tasks, buffers, dims], number) {
    const { kernel } = this.model.program.steps[number];
    const { access, sized } = this.model.program.kernels[kernel];
    const { layout, pipeline } = this.model.kernels.get(kernel);
    const blocks = sizeOf(tasks);
    if (blocks > GROUPS_MAX * GROUPS_MAX) fail("limit", `step ${number} (${kernel}) has ${blocks} blocks; at most 65535^2`);
    const entries = buffers.flatMap((place, binding) =>
      access[binding] ? [{ binding, resource: this.#range(place, binding, access[binding], `step ${number} (${kernel})`) }] : [],
    );
    if (sized) {
      const size = 16 * Math.ceil((1 + dims.length) / 4);
      entries.push({ binding: buffers.length, resource: { buffer: this.params, offset: ALIGN * number, size } });
    }
    const group = this.model.device.createBindGroup({ layout, entries });
    const x = Math.min(blocks, GROUPS_MAX);
    return { number, kernel, pipeline, group, blocks, x, y: x ? Math.ceil(blocks / x) : 0 };
  }

  #range([space, index, offset, span], binding, type, who) {
    const size = roundUp(sizeOf(span), 4);
    if (size === 0) return { buffer: this.spare[type], offset: ALIGN * binding, size: 4 };
    const limits = [["maxStorageBufferBindingSize", size, `buffer ${binding} of ${who}, in bytes,`]];
    needLimits(this.model.device.limits, limits, "this device");
    const whole = { weights: this.model.weights, arena: this.arena };
    const buffer = whole[space] ?? this[`${space}s`][index].buffer;
    return { buffer, offset: sizeOf(offset), size };
  }

  destroy() {
    for (const buffer of this.#buffers) buffer.destroy();
  }
}

/** A loaded model. */
export class Model {
  #plans = new Map();
  #last = Promise.resolve();
  #lost = "";
  #runs = 0;
  #seconds = 0;

  constructor(program, device, kernels, weights) {
    Object.assign(this, { program, device, kernels, weights });
    this.arena = null;
    device.lost.then((info) => (this.#lost = info.message || info.reason || "no reason was given"));
  }

  /** Name, dtype and dims of each; text stands for a dimension that the caller chooses. */
  get inputs() {
    return this.program.inputs;
  }

  get outputs() {
    return this.program.outputs;
  }

  /** Runs the model; calls that overlap wait for each other. */
  run(inputs, options = {}) {
    return this.#after(() => this.#run(inputs, options));
  }

  /** Milliseconds of each launch, measured one after the other; short ones several times. */
  profile(inputs, repeats = 8) {
    return this.#after(async () => {
      await this.#run(inputs, {});
      const plan = this.#plan(this.#read(inputs));
      const found = [];
      for (const step of plan.steps) {
        const once = await this.#time(step, 1);
        const milliseconds = once > LONG ? once : (await this.#time(step, repeats)) / repeats;
        found.push({ step: step.number, kernel: step.kernel, milliseconds });
      }
      return found;
    });
  }

  /** What ran so far. */
  stats() {
    const plan = [...this.#plans.values()].at(-1);
    return {
      runs: this.#runs,
      seconds: this.#seconds,
      launches: plan?.steps?.length ?? 0,
      kernels: this.kernels.size,
      arenaBytes: this.arena?.size ?? 0,
      weightsBytes: this.weights?.size ?? 0,
    };
  }

  /** Frees the model's memory on the device. */
  destroy() {
    for (const plan of this.#plans.values()) plan.destroy();
    this.#plans.clear();
    this.arena?.destroy();
    this.weights?.destroy();
    this.arena = this.weights = null;
  }

  #after(work) {
    const done = this.#last.then(async () => {
      if (this.#lost) this.#failLost();
      return work().catch(async (error) => {
        await new Promise((next) => setTimeout(next)); // what lost the device is told after what failed
        if (this.#lost) this.#failLost();
        throw error;
      });
    });
    this.#last = done.catch(() => null);
    return done;
  }

  #failLost() {
    fail("lost", `the device was lost (${this.#lost}); load the model again`);
  }

  #read(inputs) {
    const { program } = this;
    const known = new Set(program.inputs.map((port) => port.name));
    const names = program.inputs.map((port) => quoted(port.name)).join(", ");
    if (typeof inputs !== "object" || inputs === null) fail("input", `give an object with the inputs ${names}`);
    for (const name of Object.keys(inputs))
      if (!known.has(name)) fail("input", `there is no input ${quoted(name)}; the inputs are ${names}`);
    for (const { name } of program.inputs)
      if (!Object.hasOwn(inputs, name)) fail("input", `input ${quoted(name)} is missing; the inputs are ${names}`);
    return program.inputs.map((port) => readInput(port, inputs[port.name]));
  }

  #plan(given) {
    const symbols = bindSymbols(this.program, given);
    const key = symbols.join();
    const known = this.#plans.get(key);
    const at = known?.at ?? this.program.at(symbols);
    checkShapes(this.program, at, given);
    const plan = known ?? new Plan(this, at);
    this.#plans.delete(key);
    this.#plans.set(key, plan); // the latest is the last
    for (const old of [...this.#plans.keys()].slice(0, -PLANS)) {
      this.#plans.get(old).destroy();
      this.#plans.delete(old);
    }
    if (!this.arena || this.arena.size < plan.arenaBytes) this.#enlarge(plan.arenaBytes);
    plan.bind(this.arena);
    return plan;
  }

  #enlarge(bytes) {
    const size = Math.max(ALIGN, roundUp(bytes, ALIGN));
    needLimits(this.device.limits, [["maxBufferSize", size, "the memory between kernels, in bytes,"]], "this device");
    this.arena?.destroy();
    this.arena = this.device.createBuffer({ size, usage: GPUBufferUsage.STORAGE });
  }

  /** Work whose faults on the device become an error. */
  async #checked(work) {
    const { device } = this;
    device.pushErrorScope("out-of-memory");
    device.pushErrorScope("validation");
    let faults;
    try {
      return await work(() => (faults = [device.popErrorScope(), device.popErrorScope()]));
    } finally {
      faults ??= [device.popErrorScope(), device.popErrorScope()];
      const [invalid, memory] = await Promise.all(faults);
      if (memory) fail("gpu", `the device has too little memory: ${memory.message}`);
      if (invalid) fail("gpu", invalid.message);
    }
  }

  async #run(inputs, { gpu = false }) {
    const began = performance.now();
    const given = this.#read(inputs);
    const found = await this.#checked(async (issued) => {
      const plan = this.#plan(given);
      const encoder = this.device.createCommandEncoder();
      given.forEach((from, k) => this.#upload(encoder, from, plan.inputs[k]));
      const pass = encoder.beginComputePass();
      for (const step of plan.steps) this.#encode(pass, step);
      pass.end();
      const kept = plan.outputs.map((out) => this.#keep(encoder, plan, out, gpu));
      this.device.queue.submit([encoder.finish()]);
      issued();
      return gpu ? kept : this.#download(plan);
    });
    this.#runs += 1;
    this.#seconds += (performance.now() - began) / 1000;
    return Object.fromEntries(found.map((tensor, k) => [this.program.outputs[k].name, tensor]));
  }

  #upload(encoder, from, to) {
    if (from.onDevice) {
      if (from.bytes) encoder.copyBufferToBuffer(from.data, 0, to.buffer, 0, roundUp(from.bytes, 4));
      return;
    }
    const { buffer, byteOffset, byteLength } = from.data;
    const whole = byteLength % 4 === 0;
    const bytes = new Uint8Array(whole ? buffer : roundUp(byteLength, 4), whole ? byteOffset : 0, whole ? byteLength : undefined);
    if (!whole) bytes.set(new Uint8Array(buffer, byteOffset, byteLength));
    if (bytes.length) this.device.queue.writeBuffer(to.buffer, 0, bytes);
  }

  #encode(pass, step) {
    pass.setPipeline(step.pipeline);
    pass.setBindGroup(0, step.group);
    pass.dispatchWorkgroups(step.x, step.y);
  }

  /** Takes an output to where the caller finds it. */
  #keep(encoder, plan, { port, dims, bytes, buffer, at }, gpu) {
    const size = roundUp(bytes, 4);
    if (!gpu) {
      if (size) encoder.copyBufferToBuffer(buffer, 0, plan.staging, at, size);
      return null;
    }
    const usage = GPUBufferUsage.STORAGE | GPUBufferUsage.COPY_SRC | GPUBufferUsage.COPY_DST;
    const data = this.device.createBuffer({ size: Math.max(4, size), usage });
    if (size) encoder.copyBufferToBuffer(buffer, 0, data, 0, size);
    return { data, dims, dtype: port.dtype };
  }

  async #download({ staging, outputs }) {
    await staging.mapAsync(GPUMapMode.READ);
    const mapped = staging.getMappedRange();
    const found = outputs.map(({ port, dims, bytes, at }) => {
      return { data: new ARRAYS[port.dtype](mapped.slice(at, at + bytes)), dims, dtype: port.dtype };
    });
    staging.unmap();
    return found;
  }

  async #time(step, repeats) {
    const encoder = this.device.createCommandEncoder();
    const pass = encoder.beginComputePass();
    for (let k = 0; k < repeats; k++) this.#encode(pass, step);
    pass.end();
    const began = performance.now();
    this.device.queue.submit([encoder.finish()]);
    await this.device.queue.onSubmittedWorkDone();
    return performance.now() - began;
  }
}

/** The folder of the bundle, as an address that ends with a slash. */
function folderOf(url) {
  const here = globalThis.document?.baseURI ?? globalThis.location?.href ?? import.meta.url;
  const found = url === undefined ? new URL(".", import.meta.url) : new URL(url, here);
  if (!found.pathname.endsWith("/")) found.pathname += "/";
  return found;
}

/**
 * Loads the model.
 * @param url the bundle's folder; where this module lies when left out.
 * @param options `device`: a GPUDevice to use; `onProgress`: called with { stage, loaded, total }.
 */
export async function load(url, { device, onProgress } = {}) {
  const own = device ?? (await openDevice());
  const size = program.weights?.payload ?? 0;
  needLimits(own.limits, [["maxBufferSize", size, "the buffer of the weights, in bytes,"]], "this device");
  const progress = (stage, loaded, total) => onProgress?.({ stage, loaded, total });
  const file = new URL("weights.bin", folderOf(url));
  const kernels = compileKernels(own, program, (loaded, total) => progress("kernels", loaded, total));
  kernels.catch(() => null); // the weights may fail first
  const { weights: kept } = program;
  const bytes = kept && (await fetchWeights(file, kept, (loaded) => progress("weights", loaded, kept.file)));
  const weights = bytes && own.createBuffer({ size: kept.payload, usage: GPUBufferUsage.STORAGE | GPUBufferUsage.COPY_DST });
  if (bytes) own.queue.writeBuffer(weights, 0, bytes, 0, kept.payload);
  return new Model(program, own, await kernels, weights);
}
