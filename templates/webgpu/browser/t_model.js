// ---- inputs ----

/** Data and dimensions of what a caller gives for an input. */
function readInput(port, given) {
  const name = `input ${quoted(port.name)}`;
  const data = given?.data ?? given;
  const kinds = [ARRAYS[port.dtype], ...(ALSO[port.dtype] ?? [])];
  const onDevice = data instanceof GPUBuffer;
  if (!onDevice && !kinds.includes(data?.constructor))
    fail("input", `${name} is ${port.dtype}: give a ${kinds[0].name} or a GPUBuffer, not ${data?.constructor?.name ?? "nothing"}`);
  const size = onDevice ? null : data.length;
  const dims = given.dims ? Array.from(given.dims) : dimsFor(port, size, name);
  if (dims.length !== port.dims.length || !dims.every((d) => Number.isSafeInteger(d) && d >= 0))
    fail("input", `${name} has dimensions ${shown(dims)}; expected ${shown(port.dims)}`);
  if (size !== null && count(dims) !== size) fail("input", `${name} has ${size} elements, and dimensions ${shown(dims)}`);
  const bytes = count(dims) * ARRAYS[port.dtype].BYTES_PER_ELEMENT;
  if (onDevice && data.size < roundUp(bytes, 4)) fail("input", `${name} is a buffer of ${data.size} bytes; ${shown(dims)} needs ${bytes}`);
  if (onDevice && !(data.usage & GPUBufferUsage.COPY_SRC)) fail("input", `${name} is a buffer without the usage COPY_SRC`);
  return { data, dims, bytes, onDevice };
}

/** The dimensions of data that comes without: where they follow from its length. */
function dimsFor(port, size, name) {
  const free = port.dims.filter((d) => typeof d !== "number");
  const rest = count(port.dims.filter((d) => typeof d === "number"));
  if (free.length > 1 || (free.length && (size === null || rest === 0 || size % rest)))
    fail("input", `${name} is ${shown(port.dims)}: give { data, dims }`);
  return port.dims.map((d) => (typeof d === "number" ? d : size / rest));
}

/** The sizes that a run is about, from the inputs' dimensions and elements. */
function bindSymbols(given) {
  return program.symbols.map(({ input, dim, min, max, kind }) => {
    const { data, dims, onDevice } = given[input];
    const [what, name] = [kind === "dim" ? "dimension" : "element", quoted(program.inputs[input].name)];
    if (kind !== "dim" && onDevice) fail("input", `input ${name} holds sizes: give it as a typed array`);
    const value = BigInt(kind === "dim" ? dims[dim] : data[dim]);
    const moved = least(most(value, BigInt(min)), BigInt(max));
    if (moved !== value && kind !== "clamped")
      fail("input", `${what} ${dim} of input ${name} is ${value}, which is not in ${min} .. ${max}`);
    return moved;
  });
}

/** What a run is, in the form of the model that its sizes fit: a variant for them, or the loose form where need be. */
function atForm(symbols) {
  const { forms, variants = [] } = program;
  const [fast, ...others] = forms.map((form) => form(symbols));
  const loose = others[variants.length];
  const unfit = ([, left, right]) => BigInt(left) !== BigInt(right);
  const first = fast.conditions.find(unfit);
  const takes = (sizes, k) => sizes.every(([s, least, most]) => symbols[s] >= least && symbols[s] <= most) && !others[k].conditions.some(unfit);
  if (!first) return others[variants.findIndex(takes)] ?? fast;
  if (!loose) return fast;
  const isOne = first.slice(1).some((size) => BigInt(size) === 1n); // the loose form says better what is wrong then
  return isOne || !loose.conditions.some(unfit) ? loose : fast;
}

function checkShapes(at, given) {
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

/** The text of a kernel that a device runs: some kernels have one for devices with subgroups. */
function textFor(device, { text, subgroups }) {
  return subgroups && device.features.has("subgroups") ? `enable subgroups;\n${subgroups}` : text;
}

/** The pipelines of the kernels, by name. */
async function compileKernels(device, progress) {
  const names = Object.keys(program.kernels);
  let done = 0;
  const made = names.map(async (label) => {
    const module = device.createShaderModule({ label, code: textFor(device, program.kernels[label]) });
    const pipeline = await device
      .createComputePipelineAsync({ label, layout: "auto", compute: { module } })
      .catch((error) => fail("gpu", `kernel ${label} is not accepted: ${error.message}`));
    progress((done += 1), names.length);
    return [label, pipeline];
  });
  return new Map(await Promise.all(made));
}

/** The buffers and launches of runs with inputs of certain shapes. */
class Plan {
  #model;
  #buffers = [];

  constructor(model, at) {
    const { STORAGE, COPY_SRC, COPY_DST, MAP_READ, UNIFORM } = GPUBufferUsage;
    this.#model = model;
    this.at = at;
    const ports = (kind) =>
      program[`${kind}s`].map(({ name, dtype }, k) => {
        const dims = at[`${kind}s`][k].map(sizeOf);
        const bytes = count(dims) * ARRAYS[dtype].BYTES_PER_ELEMENT;
        return { dtype, dims, bytes, buffer: this.#buffer(bytes, STORAGE | COPY_SRC | COPY_DST, `${kind} ${quoted(name)}`) };
      });
    this.input = ports("input");
    this.output = ports("output");
    let end = 0;
    for (const out of this.output) {
      out.at = end;
      end += roundUp(out.bytes, 8);
    }
    this.staging = this.#buffer(end, MAP_READ | COPY_DST, "the outputs together");
    this.arena = this.#buffer(sizeOf(at.arena), STORAGE | COPY_SRC, "the memory between kernels");
    this.params = this.#buffer(ALIGN * at.steps.length, UNIFORM | COPY_DST, "the kernels' sizes");
    // What stands for tensors without elements; of weights apart, as these are only ever read.
    [this.noWeights, this.nothing] = [0, 1].map(() => this.#buffer(ALIGN * 64, STORAGE, "empty tensors"));
    this.steps = at.steps.map((step, k) => this.#launch(step, k)).filter((launch) => launch.blocks > 0);
    this.moves = (at.moves ?? []).map(([from, to, bytes]) => this.#move(from, to, bytes));
  }

  #buffer(bytes, usage, what) {
    const size = Math.max(ALIGN, roundUp(bytes, ALIGN));
    needLimit(this.#model.device, "maxBufferSize", size, what);
    const buffer = this.#model.device.createBuffer({ size, usage });
    this.#buffers.push(buffer);
    return buffer;
  }

  #launch([kernel, tasks, buffers, dims], k) {
    const { device, pipelines } = this.#model;
    const number = this.at.first + k;
    const who = `step ${number} (${kernel})`;
    const blocks = sizeOf(tasks);
    const places = buffers.map((place, binding) => ({ binding, resource: this.#range(place, binding, who) }));
    const entries = places.filter(({ resource }) => resource);
    if (program.kernels[kernel].sized)
      entries.push({ binding: buffers.length, resource: this.#giveSizes([tasks, ...dims], k, who) });
    const pipeline = pipelines.get(kernel);
    const group = device.createBindGroup({ layout: pipeline.getBindGroupLayout(0), entries });
    const x = Math.min(blocks, GROUPS_MAX);
    return { number, kernel, pipeline, group, blocks, x, y: Math.ceil(blocks / x) };
  }

  /** What is bound; null: the same as one before it. */
  #range([space, index, offset, span], binding, who) {
    if (span === null) return null;
    const size = roundUp(sizeOf(span), 4);
    const { device } = this.#model;
    if (size === 0) return { buffer: space === "weights" ? this.noWeights : this.nothing, offset: ALIGN * binding, size: 4 };
    needLimit(device, "maxStorageBufferBindingSize", size, `buffer ${binding} of ${who}`);
    return { buffer: this.#memory(space, index), offset: sizeOf(offset), size };
  }

  #memory(space, index) {
    const { weights, states } = this.#model;
    return { weights, arena: this.arena, state: states?.buffer }[space] ?? this[space][index].buffer;
  }

  /** The arguments of a copy at the end of a step. */
  #move([space, index, offset], target, bytes) {
    return [this.#memory(space, index), sizeOf(offset), this.#model.states.buffer, target, roundUp(bytes, 4)];
  }

  /** The number of blocks and the sizes that a kernel is given. */
  #giveSizes(sizes, k, who) {
    const wide = sizes.find((size) => BigInt.asIntN(32, BigInt(size)) !== BigInt(size));
    if (wide !== undefined) fail("limit", `size ${wide} of ${who} does not fit 32 bits`);
    this.#model.device.queue.writeBuffer(this.params, ALIGN * k, Int32Array.from(sizes, Number));
    return { buffer: this.params, offset: ALIGN * k, size: roundUp(4 * sizes.length, 16) };
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

  /** Name, dtype and dims of each; text stands for a dimension that the caller chooses. */
  inputs = program.inputs;
  outputs = program.outputs;

  /** Of a model that trains: what it keeps from step to step; null for others. */
  states = null;

  constructor(device, pipelines, weights, file) {
    Object.assign(this, { program, device, pipelines, weights });
    if (program.states) this.states = new States(device, file, (work) => this.#after(work));
    device.lost.then((info) => (this.#lost = info.message || info.reason || "no reason was given"));
  }

  /** Runs the model; calls that overlap wait for each other. */
  run(inputs, options = {}) {
    return this.#after(async () => {
      if (this.states) fail("input", "the model trains: call step, or load one that was compiled without --train");
      return this.#run(inputs, options);
    });
  }

  /** A step of training: gives the loss and changes the weights. */
  step(inputs, options = {}) {
    return this.#after(async () => {
      if (!this.states) fail("input", "the model does not train: call run, or compile it with --train");
      return this.#run(inputs, options);
    });
  }

  /** Milliseconds of each launch, measured one after the other; short ones several times. States stay as they are. */
  profile(inputs, repeats = 8) {
    return this.#after(async () => {
      const kept = await this.states?.download();
      await this.#run(inputs, {});
      const found = [];
      for (const step of this.#plan(this.#read(inputs)).steps) {
        const once = await this.#time(step, 1);
        const milliseconds = once > LONG ? once : (await this.#time(step, repeats)) / repeats;
        found.push({ step: step.number, kernel: step.kernel, milliseconds });
      }
      this.states?.upload(kept);
      return found;
    });
  }

  /** What ran so far. */
  stats() {
    const plan = [...this.#plans.values()].at(-1);
    return {
      runs: this.#runs,
      seconds: this.#seconds,
      launches: plan?.steps.length ?? 0,
      kernels: this.pipelines.size,
      arenaBytes: plan?.arena.size ?? 0,
      weightsBytes: this.weights?.size ?? 0,
    };
  }

  /** Frees the model's memory on the device. */
  destroy() {
    for (const plan of this.#plans.values()) plan.destroy();
    this.#plans.clear();
    this.states?.destroy();
    this.weights?.destroy();
    this.weights = null;
  }

  #after(work) {
    const done = this.#last.then(async () => {
      this.#checkLost();
      return work().catch(async (error) => {
        await new Promise((next) => setTimeout(next)); // what lost the device is told after what failed
        this.#checkLost();
        throw error;
      });
    });
    this.#last = done.catch(() => null);
    return done;
  }

  #checkLost() {
    if (this.#lost) fail("lost", `the device was lost (${this.#lost}); load the model again`);
  }

  #read(inputs) {
    const known = program.inputs.map(({ name }) => name);
    const names = known.map(quoted).join(", ");
    if (typeof inputs !== "object" || inputs === null) fail("input", `give an object with the inputs ${names}`);
    for (const name of Object.keys(inputs))
      if (!known.includes(name)) fail("input", `there is no input ${quoted(name)}; the inputs are ${names}`);
    for (const name of known)
      if (!Object.hasOwn(inputs, name)) fail("input", `input ${quoted(name)} is missing; the inputs are ${names}`);
    return program.inputs.map((port) => readInput(port, inputs[port.name]));
  }

  #plan(given) {
    const symbols = bindSymbols(given);
    const key = symbols.join();
    const known = this.#plans.get(key);
    const at = known?.at ?? atForm(symbols);
    checkShapes(at, given);
    const plan = known ?? new Plan(this, at);
    this.#plans.delete(key);
    this.#plans.set(key, plan); // the latest is the last
    for (const [old, unused] of [...this.#plans].slice(0, -PLANS)) {
      unused.destroy();
      this.#plans.delete(old);
    }
    return plan;
  }

  /** Work whose faults on the device become an error. It issues all its commands before it first waits. */
  async #checked(work) {
    const { device } = this;
    device.pushErrorScope("out-of-memory");
    device.pushErrorScope("validation");
    const done = work();
    const faults = [device.popErrorScope(), device.popErrorScope()];
    const [, invalid, memory] = await Promise.allSettled([done, ...faults]);
    if (memory.value) fail("gpu", `the device has too little memory: ${memory.value.message}`);
    if (invalid.value) fail("gpu", invalid.value.message);
    return done;
  }

  async #run(inputs, { gpu = false }) {
    const began = performance.now();
    const given = this.#read(inputs);
    const found = await this.#checked(async () => {
      const plan = this.#plan(given);
      const encoder = this.device.createCommandEncoder();
      given.forEach((from, k) => this.#upload(encoder, from, plan.input[k].buffer));
      const pass = encoder.beginComputePass();
      for (const step of plan.steps) this.#encode(pass, step);
      pass.end();
      for (const move of plan.moves) encoder.copyBufferToBuffer(...move);
      const kept = plan.output.map((out) => this.#keep(encoder, gpu ? null : plan.staging, out));
      this.device.queue.submit([encoder.finish()]);
      return gpu ? kept : this.#download(plan);
    });
    this.#runs += 1;
    this.#seconds += (performance.now() - began) / 1000;
    return Object.fromEntries(found.map((tensor, k) => [program.outputs[k].name, tensor]));
  }

  #upload(encoder, { data, bytes, onDevice }, to) {
    if (onDevice) return encoder.copyBufferToBuffer(data, 0, to, 0, roundUp(bytes, 4));
    let all = new Uint8Array(data.buffer, data.byteOffset, bytes);
    if (bytes % 4) (all = new Uint8Array(roundUp(bytes, 4))).set(new Uint8Array(data.buffer, data.byteOffset, bytes));
    this.device.queue.writeBuffer(to, 0, all);
  }

  #encode(pass, step) {
    pass.setPipeline(step.pipeline);
    pass.setBindGroup(0, step.group);
    pass.dispatchWorkgroups(step.x, step.y);
  }

  /** Takes an output to the staging buffer, or to one of its own, which is the caller's. */
  #keep(encoder, staging, { dtype, dims, bytes, buffer, at }) {
    const { STORAGE, COPY_SRC, COPY_DST } = GPUBufferUsage;
    const size = roundUp(bytes, 4);
    const data = staging ?? this.device.createBuffer({ size: Math.max(4, size), usage: STORAGE | COPY_SRC | COPY_DST });
    encoder.copyBufferToBuffer(buffer, 0, data, staging ? at : 0, size);
    return { data, dims, dtype };
  }

  async #download({ staging, output }) {
    await staging.mapAsync(GPUMapMode.READ);
    const mapped = staging.getMappedRange();
    const read = (dtype, at, bytes) => new ARRAYS[dtype](mapped.slice(at, at + bytes));
    const found = output.map(({ dtype, dims, bytes, at }) => ({ data: read(dtype, at, bytes), dims, dtype }));
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

/**
 * Loads the model.
 * @param url the bundle's folder; where this module lies when left out.
 * @param options `device`: a GPUDevice to use; `onProgress`: called with { stage, loaded, total }.
 */
export async function load(url, { device, onProgress } = {}) {
  const own = device ?? (await openDevice());
  const { weights: kept } = program;
  needLimit(own, "maxBufferSize", kept?.payload ?? 0, "the buffer of the weights");
  const folder = url === undefined ? new URL(".", import.meta.url) : new URL(url, globalThis.document?.baseURI ?? location.href);
  if (!folder.pathname.endsWith("/")) folder.pathname += "/";
  const progress = (stage, loaded, total) => onProgress?.({ stage, loaded, total });
  const pipelines = compileKernels(own, (loaded, total) => progress("kernels", loaded, total));
  pipelines.catch(() => null); // the weights may fail first
  const file = new URL("weights.bin", folder);
  const bytes = kept && (await fetchWeights(file, kept, (loaded) => progress("weights", loaded, kept.file)));
  const weights = kept && own.createBuffer({ size: kept.payload, usage: GPUBufferUsage.STORAGE | GPUBufferUsage.COPY_DST });
  if (kept) own.queue.writeBuffer(weights, 0, bytes, 0, kept.payload);
  return new Model(own, await pipelines, weights, bytes);
}
