// A digit is drawn, and classified after each stroke.
import { load } from "./model/model.js";
import { SIDE, latest, listen, pixels, show } from "./pad.js";

const status = document.getElementById("status");

function fail(error) {
  status.textContent = error.message;
  status.className = "bad";
}

async function start() {
  const model = await load("./model/");
  status.textContent = "Draw with the mouse or a finger.";
  const classify = async () => {
    const image = pixels();
    const began = performance.now();
    const { probability } = await model.run({ image: { data: image, dims: [1, 1, SIDE, SIDE] } });
    show(image, [...probability.data]);
    status.textContent = `Answered in ${(performance.now() - began).toFixed(1)} ms.`;
  };
  listen(latest(classify, fail));
}

start()
  .catch(fail)
  .finally(() => (document.body.dataset.ready = "yes"));
