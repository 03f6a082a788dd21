// A network that begins with random weights learns digits in the page: from bundled pictures, and from those that are drawn.
import { load as loadStep } from "./train/model.js";
import { load as loadModel } from "./open/model.js";
import { SIDE, latest, listen, pixels, show } from "./pad.js";

const BATCH = 32; // pictures of a step, as it was compiled for
const PASSES = 2; // over the training pictures, for each click
const LESSON = 8; // steps for each picture that is drawn
const PIXELS = SIDE * SIDE;
const $ = (id) => document.getElementById(id);
const say = (text, bad = false) => Object.assign($("status"), { textContent: text, className: bad ? "bad" : "" });
const below = (n) => Math.floor(n * Math.random());

/** Pictures and what they show, from a file with a byte for each label and 64 for the picture, 16 for white. */
async function fetchPictures(url) {
  const bytes = new Uint8Array(await (await fetch(url)).arrayBuffer());
  return Array.from({ length: bytes.length / (1 + PIXELS) }, (_, k) => {
    const one = bytes.subarray(k * (1 + PIXELS), (k + 1) * (1 + PIXELS));
    return { label: one[0], image: Float32Array.from(one.subarray(1), (v) => v / 16) };
  });
}

function shuffled(list) {
  const found = [...list];
  for (let k = found.length - 1; k > 0; k--) {
    const other = below(k + 1);
    [found[k], found[other]] = [found[other], found[k]];
  }
  return found;
}

/** Standard normal, by Box and Muller. */
const normal = () => Math.sqrt(-2 * Math.log(1 - Math.random())) * Math.cos(2 * Math.PI * Math.random());

/** First contents of a state: weights by He's rule, scales and variances of 1, all else 0. */
function beginning({ name, dims, dtype, trained }) {
  const size = dims.reduce((n, d) => n * d, 1);
  if (dtype === "i64") return new BigInt64Array(size);
  if (/\.(scale|var)$/.test(name) && !name.startsWith("torshc.")) return new Float32Array(size).fill(1);
  if (!trained || dims.length < 2) return new Float32Array(size);
  const inputs = dims.length === 2 ? dims[0] : size / dims[0]; // of a matrix its rows, of a filter its taps
  return Float32Array.from({ length: size }, () => normal() * Math.sqrt(2 / inputs));
}

/** A picture moved by up to a pixel each way. */
function moved(image) {
  const [right, down] = [below(3) - 1, below(3) - 1];
  return image.map((_, k) => {
    const [x, y] = [(k % SIDE) - right, Math.floor(k / SIDE) - down];
    return x >= 0 && x < SIDE && y >= 0 && y < SIDE ? image[y * SIDE + x] : 0;
  });
}

function drawCurve(losses) {
  const { width, height } = $("curve");
  const pen = $("curve").getContext("2d");
  const [top, bottom] = [Math.log(4), Math.log(0.002)];
  pen.clearRect(0, 0, width, height);
  pen.strokeStyle = getComputedStyle($("score")).color;
  pen.lineWidth = 2;
  pen.beginPath();
  losses.forEach((loss, k) => {
    const y = ((top - Math.log(loss)) / (top - bottom)) * (height - 8) + 4;
    pen.lineTo((k / Math.max(1, losses.length - 1)) * width, Math.min(height, Math.max(0, y)));
  });
  pen.stroke();
}

class Learner {
  losses = [];
  weights = {};

  /**
   * @param step the model's training step.
   * @param model the model, whose weights are inputs.
   */
  constructor(step, model, known, unseen) {
    Object.assign(this, { step, model, known, unseen });
  }

  /** Takes the weights from the step to the model. */
  async refresh() {
    for (const { name } of this.model.inputs.filter(({ name }) => name !== "image"))
      this.weights[name] = { data: await this.step.states.read(name), dims: this.step.states.ports.find((s) => s.name === name).dims };
  }

  /** The probabilities of the ten digits for some pictures. */
  async classify(images) {
    const data = new Float32Array(images.length * PIXELS);
    images.forEach((image, k) => data.set(image, k * PIXELS));
    const { probability } = await this.model.run({ ...this.weights, image: { data, dims: [images.length, 1, SIDE, SIDE] } });
    return images.map((_, k) => [...probability.data.subarray(10 * k, 10 * k + 10)]);
  }

  /** The share of pictures that it never learns from which it reads right. */
  async score() {
    await this.refresh();
    const found = await this.classify(this.unseen.map(({ image }) => image));
    const right = found.filter((p, k) => p.indexOf(Math.max(...p)) === this.unseen[k].label).length;
    $("score").textContent = `${((100 * right) / this.unseen.length).toFixed(1)} %`;
    return right / this.unseen.length;
  }

  async forget() {
    for (const state of this.step.states.ports) await this.step.states.write(state.name, beginning(state));
    this.losses = [];
    drawCurve(this.losses);
    return this.score();
  }

  async learn(batch) {
    const data = new Float32Array(BATCH * PIXELS);
    batch.forEach(({ image }, k) => data.set(image, k * PIXELS));
    const target = BigInt64Array.from(batch, ({ label }) => BigInt(label));
    const { loss } = await this.step.step({ image: data, target });
    this.losses.push(loss.data[0]);
    drawCurve(this.losses);
    return loss.data[0];
  }

  /** Learns from all training pictures in random order. */
  async study() {
    const began = performance.now();
    let steps = 0;
    for (let pass = 0; pass < PASSES; pass++) {
      const order = shuffled(this.known);
      for (let k = 0; k + BATCH <= order.length; k += BATCH) {
        const loss = await this.learn(order.slice(k, k + BATCH));
        steps += 1;
        say(`Step ${this.losses.length}: loss ${loss.toFixed(3)}, ${((performance.now() - began) / steps).toFixed(1)} ms a step.`);
      }
    }
    return this.score();
  }

  /** Learns from what is drawn, in a quarter of each step; the rest keeps it from forgetting the others. */
  async teach(image, label) {
    for (let k = 0; k < LESSON; k++) {
      const others = Array.from({ length: (3 * BATCH) / 4 }, () => this.known[below(this.known.length)]);
      const mine = Array.from({ length: BATCH / 4 }, () => ({ image: moved(image), label }));
      await this.learn([...others, ...mine]);
    }
    return this.score();
  }
}

/** Buttons that are off while one of them works. */
function makeButtons(learner, classify) {
  const labels = Array.from({ length: 10 }, (_, k) => Object.assign(document.createElement("button"), { textContent: k }));
  $("labels").append(...labels);
  const all = [...labels, $("learn"), $("forget"), $("save")];
  const doing = (work) => async () => {
    all.forEach((button) => (button.disabled = true));
    await work().catch((error) => say(error.message, true));
    all.forEach((button) => (button.disabled = false));
    await classify();
  };
  $("learn").onclick = doing(async () => {
    const score = await learner.study();
    say(`It reads ${(100 * score).toFixed(1)} % of the other pictures.`);
  });
  $("forget").onclick = doing(async () => {
    await learner.forget();
    say("It knows nothing now.");
  });
  $("save").onclick = doing(async () => {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([await learner.step.states.save()]));
    link.download = "digits.safetensors";
    link.click();
    URL.revokeObjectURL(link.href);
  });
  labels.forEach((button, label) => {
    button.onclick = doing(async () => {
      const image = pixels();
      if (image.every((v) => v === 0)) return say("Draw a digit first.");
      await learner.teach(image, label);
      say(`It has learned from this ${label}.`);
    });
  });
  all.forEach((button) => (button.disabled = false));
}

async function start() {
  const [step, model] = await Promise.all([loadStep("./train/"), loadModel("./open/")]);
  const learner = new Learner(step, model, await fetchPictures("train.bin"), await fetchPictures("test.bin"));
  await learner.forget();
  const classify = latest(async () => {
    const image = pixels();
    show(image, (await learner.classify([image]))[0]);
  }, (error) => say(error.message, true));
  listen(classify);
  makeButtons(learner, classify);
  say(`It knows nothing yet. ${learner.known.length} training pictures are here.`);
}

start()
  .catch((error) => say(error.message, true))
  .finally(() => (document.body.dataset.ready = "yes"));
