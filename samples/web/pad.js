// Where digits are drawn: the drawing as the 8x8 grey values that the model was trained on, and bars for its answer.

export const SIDE = 8;
const BLOCK = 4; // the training images count the black pixels of 4x4 blocks of 32x32 ones
const WIDE = SIDE * BLOCK;
const pad = document.getElementById("pad");
const ink = pad.getContext("2d", { willReadFrequently: true });
const seen = document.getElementById("seen").getContext("2d");

/** Where the ink is: the smallest square around it; null for an empty pad. */
function bounds() {
  const { data } = ink.getImageData(0, 0, pad.width, pad.height);
  let [left, top, right, bottom] = [pad.width, pad.height, -1, -1];
  for (let y = 0; y < pad.height; y++)
    for (let x = 0; x < pad.width; x++)
      if (data[4 * (y * pad.width + x)] > 64)
        [left, top, right, bottom] = [Math.min(left, x), Math.min(top, y), Math.max(right, x), Math.max(bottom, y)];
  if (right < 0) return null;
  const size = Math.max(right - left, bottom - top) + 1;
  return { x: (left + right + 1 - size) / 2, y: (top + bottom + 1 - size) / 2, size };
}

/** Grey values in [0, 1] of 8x8 pixels: the drawing fills the image. All are 0 where nothing is drawn. */
export function pixels() {
  const image = new Float32Array(SIDE * SIDE);
  const box = bounds();
  if (!box) return image;
  const small = new OffscreenCanvas(WIDE, WIDE).getContext("2d");
  small.drawImage(pad, box.x, box.y, box.size, box.size, 0, 0, WIDE, WIDE);
  const { data } = small.getImageData(0, 0, WIDE, WIDE);
  for (let y = 0; y < WIDE; y++)
    for (let x = 0; x < WIDE; x++)
      if (data[4 * (y * WIDE + x)] > 127)
        image[Math.floor(y / BLOCK) * SIDE + Math.floor(x / BLOCK)] += 1 / (BLOCK * BLOCK);
  return image;
}

/** Shows what the model saw, and its answer. */
export function show(image, probability) {
  const grey = seen.createImageData(SIDE, SIDE);
  image.forEach((v, k) => grey.data.set([255 * v, 255 * v, 255 * v, 255], 4 * k));
  seen.putImageData(grey, 0, 0);
  const empty = image.every((v) => v === 0);
  document.getElementById("answer").textContent = empty ? "?" : probability.indexOf(Math.max(...probability));
  document.querySelectorAll(".row").forEach((row, k) => {
    const share = empty ? 0 : probability[k];
    row.children[1].style.width = `${100 * share}%`;
    row.children[2].textContent = empty ? "" : `${(100 * share).toFixed(0)} %`;
  });
}

function makeBars() {
  for (let k = 0; k < 10; k++) {
    const row = document.createElement("div");
    row.className = "row";
    row.append(...["span", "div", "span"].map((tag) => document.createElement(tag)));
    row.children[0].textContent = k;
    row.children[1].className = "bar";
    document.getElementById("bars").append(row);
  }
}

/** Lets the visitor draw; calls `changed` after each stroke, and when the pad is cleared. */
export function listen(changed) {
  let last = null;
  const at = (event) => [event.offsetX, event.offsetY];
  const clear = () => {
    ink.fillStyle = "#000";
    ink.fillRect(0, 0, pad.width, pad.height);
    changed();
  };
  pad.addEventListener("pointerdown", (event) => {
    pad.setPointerCapture(event.pointerId);
    last = at(event);
  });
  pad.addEventListener("pointermove", (event) => {
    if (!last) return;
    Object.assign(ink, { strokeStyle: "#fff", lineWidth: 26, lineCap: "round" });
    ink.beginPath();
    ink.moveTo(...last);
    last = at(event);
    ink.lineTo(...last);
    ink.stroke();
    changed();
  });
  for (const end of ["pointerup", "pointercancel"]) pad.addEventListener(end, () => (last = null));
  document.getElementById("clear").addEventListener("click", clear);
  makeBars();
  clear();
}

/** A function that does the latest work that was asked for, one piece at a time. */
export function latest(work, fail) {
  let [stale, busy] = [false, false];
  return async () => {
    stale = true;
    if (busy) return;
    busy = true;
    while (stale) {
      stale = false;
      await work().catch(fail);
    }
    busy = false;
  };
}
