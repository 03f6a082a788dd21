// ---- integers of sizes: BigInt, so that none wraps or rounds ----

const least = (a, b) => (a < b ? a : b);
const most = (a, b) => (a > b ? a : b);
const magnitude = (a) => (a < 0n ? -a : a);
const sign = (a) => (a > 0n ? 1n : a < 0n ? -1n : 0n);
const quotient = (a, b) => (b ? a / b : 0n);
const floorDiv = (a, b) => (b ? a / b - (a % b && a < 0n !== b < 0n ? 1n : 0n) : 0n);
const floorMod = (a, b) => a - b * floorDiv(a, b);
const isInfinite = (a) => Math.abs(a) === Infinity;
const wholeOf = (a, low, high) =>
  Number.isNaN(a) ? 0n : a === Infinity ? high : a === -Infinity ? low : least(most(BigInt(Math.trunc(a)), low), high);
const roundEven = (a) => {
  const low = Math.floor(a);
  return a - low === 0.5 ? low + (low % 2 ? 1 : 0) : Math.round(a);
};
