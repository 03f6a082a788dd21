// Draws what torshc found out about one compilation, or about two side by side. Every text of a model is set as text,
// never as markup.
"use strict";

const MOST = 120; // groups that are shown at once; more are folded into blocks
const BRANCH = 40; // parts of a block
const READABLE = 0.55; // least zoom at which labels can be read
const COLOURS = { gemm: "#c2571a", conv: "#b8860b", attention: "#8e44ad", recurrent: "#a0355e", row: "#2e7d6b",
  nest: "#2f6fde", scan: "#5d6d7e", topk: "#5d6d7e" };
const TABS = { Graph: graphPane, Groups: groupsPane, Passes: passesPane, Boundaries: boundariesPane,
  Memory: memoryPane, Roofline: rooflinePane };

function el(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else made.setAttribute(name, value);
  }
  made.append(...children.flatMap((c) => (c instanceof Node ? [c] : breakable(String(c)))));
  return made;
}

// A text that breaks behind the marks that names are divided by, before it breaks inside a word.
function breakable(text) {
  return text.split(/(?<=[/._:,+-])(?=\S)/).flatMap((part, k) => (k ? [document.createElement("wbr"), part] : [part]));
}

function svg(tag, attributes = {}, text = "") {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name === "onclick") made.addEventListener("click", value);
    else made.setAttribute(name, value);
  }
  made.textContent = text;
  return made;
}

function table(titles, rows, numbers = []) {
  const cell = (tag) => (c, k) => el(tag, numbers.includes(k) ? { class: "n" } : {}, c);
  const body = rows.map(([click, ...cells]) =>
    el("tr", click ? { class: "link", onclick: click } : {}, ...cells.map(cell("td"))));
  return el("table", { class: "rows" }, el("thead", {}, el("tr", {}, ...titles.map(cell("th")))), el("tbody", {}, ...body));
}

function short(x) {
  if (!Number.isFinite(x)) return "-";
  if (x === 0) return "0";
  return Math.abs(x) >= 1e7 || Math.abs(x) < 1e-3 ? x.toExponential(1) : String(Number(x.toPrecision(3)));
}

function scaled(x, units) {
  let k = 0;
  for (; x >= 1000 && k < units.length - 1; k++) x /= 1000;
  return `${short(x)} ${units[k]}`;
}

const bytesText = (x) => scaled(x, ["B", "kB", "MB", "GB", "TB"]);
const flopsText = (x) => scaled(x, ["FLOP", "kFLOP", "MFLOP", "GFLOP", "TFLOP"]);
const clip = (text, n) => (text.length > n ? text.slice(0, n - 1) + "\u2026" : text);
const named = (n) => `${n.op}${n.origin ? ` of ${n.origin}` : ""}${n.name ? ` ${n.name}` : ""}`;
const kernelsOf = (model) => model.groups.flatMap((g) => g.kernels.map((k) => ({ group: g, kernel: k })));
const predicted = (k, roof) => Math.max(k.flops / roof.flops, k.bytes / roof.bytes);

// ---- the graph -----------------------------------------------------------------------------------------------------

class Graph {
  constructor(model, pane) {
    this.model = model;
    this.open = new Set();
    this.home = new Map(model.groups.flatMap((g, k) => g.nodes.map((n) => [n.id, k])));
    this.found = el("div", { class: "found" });
    const input = el("input", { type: "search", placeholder: "Search nodes, operators, tensors",
      oninput: () => this.search(input.value) });
    const button = (text, act) => el("button", { onclick: act }, text);
    pane.append(el("div", { class: "tools" }, input, button("+", () => this.zoom(1.4)), button("\u2212", () => this.zoom(1 / 1.4)),
      button("Fit", () => this.cy.fit(undefined, 30)), button("Fold all", () => { this.open.clear(); this.draw(); })));
    pane.append(this.found);
    const canvas = el("div", { class: "canvas" });
    pane.append(canvas);
    this.cy = cytoscape({ container: canvas, style: styles(), minZoom: 0.02, maxZoom: 4 });
    this.cy.on("tap", "node", (event) => this.tapped(event.target));
    this.draw();
  }

  zoom(by) {
    this.cy.zoom({ level: this.cy.zoom() * by, renderedPosition: { x: this.cy.width() / 2, y: this.cy.height() / 2 } });
  }

  // The parts of a range of groups: groups, or blocks of them.
  parts(low, high) {
    const step = high - low <= MOST ? 1 : Math.ceil((high - low) / BRANCH);
    return Array.from({ length: Math.ceil((high - low) / step) }, (_, k) => [low + k * step, Math.min(high, low + (k + 1) * step)]);
  }

  // What is visible: boxes, and for each group the box that stands for it, or null where it is open itself.
  boxes() {
    const boxes = [], leaf = [];
    const walk = (low, high, parent) => {
      for (const [a, b] of this.parts(low, high)) {
        if (b - a === 1) this.groupBox(a, parent, boxes, leaf);
        else {
          const id = `b${a}-${b}`, open = this.open.has(id);
          boxes.push({ data: { id, parent, label: `groups ${a} to ${b - 1}\n${clip(this.summary(a, b), 46)}` }, classes: open ? "opened" : "block" });
          if (open) walk(a, b, id);
          else leaf.fill(id, a, b);
        }
      }
    };
    leaf.length = this.model.groups.length;
    walk(0, leaf.length, undefined);
    return { boxes, leaf };
  }

  summary(a, b) {
    const counts = new Map();
    for (const g of this.model.groups.slice(a, b)) counts.set(g.kind, (counts.get(g.kind) || 0) + 1);
    return [...counts].sort((x, y) => y[1] - x[1]).map(([kind, n]) => `${n} ${kind}`).join(", ");
  }

  groupBox(k, parent, boxes, leaf) {
    const g = this.model.groups[k], id = `g${k}`, open = this.open.has(id);
    const type = g.writes.length ? g.writes[0].type : "";
    boxes.push({ data: { id, parent, group: k, colour: COLOURS[g.kind] || "#5d6d7e", label: `${g.id}  ${clip(g.operators, 40)}\n${clip(type, 36)}` },
      classes: open ? "opened" : "group" });
    leaf[k] = open ? null : id;
    if (!open) return;
    for (const n of [...g.nodes, ...g.folded])
      boxes.push({ data: { id: `n${k}:${n.id}`, parent: id, group: k, label: `${n.op}\n${clip(n.type, 30)}` },
        classes: g.nodes.includes(n) ? "node" : "node folded" });
  }

  edges(leaf) {
    const edges = new Map();
    const join = (source, target) => { if (source !== target) edges.set(`${source}>${target}`, { data: { id: `${source}>${target}`, source, target } }); };
    this.model.groups.forEach((g, c) => {
      const nodes = [...g.nodes, ...g.folded], own = new Set(nodes.map((n) => n.id)), met = new Set();
      for (const n of nodes)
        for (const o of n.operands) {
          const target = leaf[c] ?? `n${c}:${n.id}`, h = this.home.get(o);
          if (own.has(o)) { if (leaf[c] === null) join(`n${c}:${o}`, target); }
          else if (h !== undefined) { met.add(h); join(leaf[h] ?? `n${h}:${o}`, target); }
        }
      for (const h of g.reads.flatMap((t) => t.groups))
        if (h !== c && !met.has(h)) join(leaf[h] ?? `n${h}:${this.model.groups[h].nodes.at(-1).id}`, leaf[c] ?? `n${c}:${g.nodes[0].id}`);
    });
    return [...edges.values()];
  }

  draw(focus) {
    const { boxes, leaf } = this.boxes(), edges = this.edges(leaf);
    this.cy.elements().remove();
    this.cy.add([...boxes, ...edges]);
    this.cy.layout({ name: "dagre", rankDir: "TB", nodeSep: 16, rankSep: 34, edgeSep: 6, animate: false, fit: true, padding: 30,
      ranker: boxes.length > 200 ? "longest-path" : "network-simplex" }).run();
    if (focus) this.centre(focus);
    else if (this.cy.zoom() < READABLE) this.begin();
  }

  // Where a graph is too long to be read as a whole: its upper end.
  begin() {
    const first = this.cy.nodes().min((n) => n.position("y")).ele, at = first.position();
    this.cy.viewport({ zoom: 0.9, pan: { x: this.cy.width() / 2 - at.x * 0.9, y: 70 - at.y * 0.9 } });
  }

  centre(id) {
    const box = this.cy.getElementById(id);
    if (box.empty()) return;
    this.cy.fit(box, 60);
    if (this.cy.zoom() > 1.2) { this.cy.zoom(1.2); this.cy.center(box); }
  }

  tapped(box) {
    const id = box.id(), group = box.data("group");
    if (group === undefined) return this.toggle(id);
    if (id.startsWith("g") && this.chosen === group) return this.toggle(id);
    this.choose(group);
  }

  toggle(id) {
    if (!this.open.delete(id)) this.open.add(id);
    this.draw(id);
  }

  choose(group) {
    this.chosen = group;
    this.cy.nodes().unselect();
    this.cy.getElementById(`g${group}`).select();
    showGroup(this.model, this.model.groups[group]);
  }

  // Opens the blocks around a group and shows it.
  reveal(group) {
    let [low, high] = [0, this.model.groups.length];
    for (;;) {
      [low, high] = this.parts(low, high).find(([a, b]) => a <= group && group < b);
      if (high - low === 1) break;
      this.open.add(`b${low}-${high}`);
    }
    this.draw(`g${group}`);
    this.choose(group);
  }

  search(text) {
    const wanted = text.trim().toLowerCase(), hits = [];
    this.model.groups.forEach((g, k) => {
      const texts = [`group ${g.id}`, ...g.nodes.map(named), ...g.folded.map(named), ...g.reads.map((t) => t.name), ...g.writes.map((t) => t.name)];
      const hit = wanted && hits.length < 50 && texts.find((t) => t.toLowerCase().includes(wanted));
      if (hit) hits.push(el("button", { onclick: () => { this.found.replaceChildren(); this.reveal(k); } }, `${g.id}: ${clip(hit, 80)}`));
    });
    this.found.replaceChildren(...(wanted && !hits.length ? [el("button", {}, "nothing found")] : hits));
  }
}

const pen = document.createElement("canvas").getContext("2d");

// Width and height of a box's label in pixels of the graph.
function labelSize(box) {
  const lines = String(box.data("label") ?? "").split("\n");
  pen.font = "11px Helvetica Neue, Helvetica, sans-serif"; // what Cytoscape.js writes labels in
  return [Math.max(...lines.map((line) => pen.measureText(line).width), 1), 13 * lines.length];
}

function styles() {
  const css = getComputedStyle(document.body), text = css.color;
  const label = { label: "data(label)", "text-wrap": "wrap", "text-valign": "center", "font-size": 11, color: "#fff",
    shape: "round-rectangle", width: (n) => labelSize(n)[0], height: (n) => labelSize(n)[1], padding: 7 };
  return [
    { selector: "node", style: label },
    { selector: ".group", style: { "background-color": "data(colour)" } },
    { selector: ".block", style: { "background-color": "#4a5568", "border-width": 3, "border-color": "#8793a6", "border-style": "double" } },
    { selector: ".opened", style: { "background-opacity": 0.08, "border-width": 1, "border-color": "#8793a6", "text-valign": "top", color: text, "text-margin-y": -4 } },
    { selector: ".node", style: { "background-color": "#5b7083", "font-size": 10 } },
    { selector: ".folded", style: { "background-opacity": 0.5, "border-width": 1, "border-style": "dashed", "border-color": "#8793a6" } },
    { selector: "node:selected", style: { "border-width": 4, "border-color": "#ffb300", "border-style": "solid" } },
    { selector: "edge", style: { width: 1.4, "line-color": "#8793a6", "target-arrow-color": "#8793a6", "target-arrow-shape": "triangle", "arrow-scale": 0.8, "curve-style": "bezier" } },
  ];
}

// ---- one group -----------------------------------------------------------------------------------------------------

function showGroup(model, g) {
  const parts = [el("h2", {}, `Group ${g.id}: ${g.operators}`),
    el("p", {}, `${g.kind}; ${flopsText(g.flops)}, ${bytesText(g.bytes)} moved, ${short(g.flops / g.bytes)} flop/byte`)];
  if (g.rules.length) parts.push(el("p", {}, `brought together by: ${g.rules.join("; ")}`));
  const node = (n) => [null, n.id, n.origin ? `${n.op} (of ${n.origin})` : n.op, n.name, n.type];
  parts.push(el("h2", {}, "Nodes"), table(["", "operator", "name", "result"], g.nodes.map(node), [0]));
  if (g.folded.length) parts.push(el("h2", {}, "Read through, or computed again here"), table(["", "operator", "name", "result"], g.folded.map(node), [0]));
  const tensor = (t) => [null, t.name, t.type, t.kind === "value" ? (t.groups.length ? `group ${t.groups.join(", ")}` : "") : t.kind];
  parts.push(el("h2", {}, "Reads"), table(["name", "type", "from"], g.reads.map(tensor)));
  parts.push(el("h2", {}, "Writes"), table(["name", "type", ""], g.writes.map((t) => [null, t.name, t.type, ""])));
  const stop = (s) => [null, s.producer ? named(s.producer) : "input", named(s.consumer), `${s.reason}: ${s.rule || s.meaning}`];
  if (g.stops.length) parts.push(el("h2", {}, "Where fusion stopped"), table(["from", "to", "reason"], g.stops.map(stop)));
  for (const k of g.kernels) {
    parts.push(el("h2", {}, `Kernel ${k.symbol}`), el("p", {}, `${k.kind}, template ${k.template}; ${flopsText(k.flops)}, ${bytesText(k.bytes)}; tasks ${k.tasks}` +
      (k.scratch ? `; scratch ${k.scratch} bytes a thread` : "") + (k.pinned ? `; edited: ${k.pinned}` : "") + (k.tuned ? `; tuned: ${k.tuned}` : "")));
    if (model.sources[k.symbol]) parts.push(el("pre", {}, document.createTextNode(model.sources[k.symbol])));
  }
  document.getElementById("detail").replaceChildren(...parts);
}

// ---- the other panes -----------------------------------------------------------------------------------------------

function graphPane(model, pane) {
  pane.classList.add("graph");
  (window.torshc.graphs ||= []).push(new Graph(model, pane));
}

function groupsPane(model, pane) {
  const at = new Map();
  kernelsOf(model).forEach(({ group }, k) => at.set(group.id, (at.get(group.id) || 0) + (model.measured[k] || 0)));
  const rows = model.groups.map((g) => [() => showGroup(model, g), g.id, [g.kind, ...g.templates].join(" / "), clip(g.operators, 90),
    g.writes.length ? g.writes[0].type : "", short(g.flops / 1e6), short(g.bytes / 1e3), short(g.flops / g.bytes), ...(model.measured.length ? [short(at.get(g.id) * 1e6)] : [])]);
  pane.append(table(["", "kind / template", "operators", "result", "MFLOP", "kB", "flop/B", ...(model.measured.length ? ["us"] : [])], rows, [0, 4, 5, 6, 7]));
  if (model.course.length) pane.append(el("h2", {}, "What the host does between the launches"),
    el("pre", {}, model.course.map((line) => "  ".repeat(line.depth) + line.text).join("\n")));
}

function passesPane(model, pane) {
  const change = (n) => el("span", { class: n > 0 ? "down" : "up" }, `${n > 0 ? "+" : "\u2212"}${Math.abs(n)}`);
  const changes = (r) => el("span", {}, ...Object.entries(r.operators).flatMap(([name, n]) => [`${name} `, change(n), "  "]));
  pane.append(el("p", {}, `${model.imported_nodes} nodes imported, ${model.optimised_nodes} after the passes. Runs that changed something:`));
  pane.append(table(["pass", "before", "after", "operators", "ms"], model.runs.map((r) => [null, r.name, r.before, r.after, changes(r), short(r.seconds * 1e3)]), [1, 2, 4]));
  const idle = model.passes.filter((p) => !p.changes).map((p) => p.name);
  if (idle.length) pane.append(el("p", { class: "hint" }, `changed nothing: ${idle.join(", ")}`));
}

function boundariesPane(model, pane) {
  const stops = model.groups.flatMap((g) => g.stops.map((s) => ({ g, s })));
  const counts = new Map();
  for (const { s } of stops) counts.set(s.reason, (counts.get(s.reason) || 0) + 1);
  pane.append(el("p", {}, [...counts].map(([reason, n]) => `${n} ${reason}`).join(", ") || "Fusion stopped nowhere."));
  const row = ({ g, s }) => [() => showGroup(model, g), s.source === null ? "input" : `${s.source}: ${named(s.producer ?? { op: "" })}`, `${g.id}: ${named(s.consumer)}`, s.reason, s.rule || s.meaning, s.value];
  pane.append(table(["from group", "to group", "reason", "rule or meaning", "value through memory"], stops.slice(0, 5000).map(row)));
  pane.append(el("h2", {}, "Fusion rules"), table(["rule", "does", "groups", "boundaries", "cannot have"],
    model.rules.map((r) => [null, r.where ? `${r.name} (${r.where})` : r.name, r.action, clip(r.groups.join(", "), 80), r.stops, r.unmet.join("; ")]), [3]));
}

function memoryPane(model, pane) {
  const [w, h] = [900, 360], n = model.live.length, top = Math.max(model.arena_bytes, ...model.live, 1);
  const x = (k) => 70 + (k * (w - 90)) / Math.max(n, 1), y = (v) => h - 30 - (v * (h - 60)) / top;
  const chart = svg("svg", { viewBox: `0 0 ${w} ${h}` });
  for (const part of [0, 0.5, 1]) chart.append(svg("path", { class: "axis", d: `M70 ${y(top * part)}H${w - 20}` }), svg("text", { x: 62, y: y(top * part) + 4, "text-anchor": "end" }, bytesText(top * part)));
  model.live.forEach((v, k) => {
    const bar = svg("rect", { class: "bar", x: x(k), width: Math.max((w - 90) / n - 0.5, 0.3), y: y(v), height: y(0) - y(v), onclick: () => showGroup(model, model.groups[k]) });
    bar.append(svg("title", {}, `group ${k}: ${bytesText(v)}`));
    chart.append(bar);
  });
  chart.append(svg("path", { class: "roof", d: `M70 ${y(model.arena_bytes)}H${w - 20}`, "stroke-dasharray": "6 4" }), svg("text", { x: w - 20, y: y(model.arena_bytes) - 5, "text-anchor": "end" }, `arena ${bytesText(model.arena_bytes)}`));
  chart.append(svg("text", { x: w / 2, y: h - 8, "text-anchor": "middle" }, "group, in order of launches"));
  const peak = Math.max(...model.live, 0), at = model.live.indexOf(peak);
  pane.append(el("p", {}, `Bars: bytes of values between kernels that are in use while a group runs; the peak is ${bytesText(peak)}` +
    `${peak ? `, at group ${at}` : ""}. The arena, ${bytesText(model.arena_bytes)}, is the one block that a run has for them: values that are not in ` +
    `use at the same time share its bytes, and what it has more than the peak are gaps and alignment. ` +
    `Weights (${bytesText(model.weights_bytes)}), inputs, outputs and scratch of threads are apart.`), chart);
}

function rooflinePane(model, pane) {
  // What bench measured; else two multiply-adds of a vector each cycle at 3 GHz and 12 GB/s for one core, and an H100's order.
  const roof = { ...(model.lanes ? { flops: model.lanes * 12e9, bytes: 12e9 } : { flops: 5e13, bytes: 3e12 }), ...model.roof };
  const place = el("div");
  const field = (name) => el("input", { type: "number", value: roof[name] / 1e9, min: 0.001, oninput: (e) => { if (e.target.value > 0) { roof[name] = e.target.value * 1e9; draw(); } } });
  const draw = () => place.replaceChildren(rooflineChart(model, roof), rooflineTable(model, roof));
  pane.append(el("p", {}, `${model.roof.flops ? "Measured" : "Assumed"} peak: `, field("flops"), " GFLOP/s, ", field("bytes"), " GB/s. ",
    model.measured.length ? "Blue: predicted, green: measured." : "Blue: predicted. torshc bench MODEL --profile --json > FILE measures; explain --measured FILE shows it here."), place);
  draw();
}

function rooflineChart(model, roof) {
  const [w, h] = [900, 420], all = kernelsOf(model).map((p, k) => ({ ...p, seconds: model.measured[k] }));
  const points = all.filter(({ kernel }) => kernel.flops && kernel.bytes);
  const rates = points.flatMap(({ kernel, seconds }) => [kernel.flops / predicted(kernel, roof), ...(seconds ? [kernel.flops / seconds] : [])]);
  const low = Math.log10(Math.min(0.01, ...points.map(({ kernel: k }) => k.flops / k.bytes))), high = Math.log10(Math.max(1000, ...points.map(({ kernel: k }) => k.flops / k.bytes)));
  const top = Math.log10(roof.flops * 2), bottom = Math.min(top - 5, Math.log10(Math.min(...rates, roof.flops)) - 0.2);
  const x = (v) => 70 + ((Math.log10(v) - low) * (w - 100)) / (high - low), y = (v) => h - 40 - ((Math.log10(v) - bottom) * (h - 60)) / (top - bottom);
  const chart = svg("svg", { viewBox: `0 0 ${w} ${h}` });
  for (let e = Math.ceil(low); e <= high; e++) chart.append(svg("path", { class: "axis", d: `M${x(10 ** e)} 20V${h - 40}` }), svg("text", { x: x(10 ** e), y: h - 26, "text-anchor": "middle" }, short(10 ** e)));
  for (let e = Math.ceil(bottom); e <= top; e++) chart.append(svg("path", { class: "axis", d: `M70 ${y(10 ** e)}H${w - 30}` }), svg("text", { x: 64, y: y(10 ** e) + 4, "text-anchor": "end" }, short(10 ** e / 1e9)));
  const knee = roof.flops / roof.bytes, from = 10 ** Math.max(low, bottom - Math.log10(roof.bytes)); // where the roof enters the picture
  chart.append(svg("path", { class: "roof", d: `M${x(from)} ${y(roof.bytes * from)}L${x(knee)} ${y(roof.flops)}H${w - 30}` }));
  chart.append(svg("text", { x: w / 2, y: h - 8, "text-anchor": "middle" }, "flop / byte"), svg("text", { x: 8, y: 14 }, "GFLOP/s"));
  const dot = (p, seconds, kind) => {
    const made = svg("circle", { class: `dot ${kind}`, r: 5, cx: x(p.kernel.flops / p.kernel.bytes), cy: y(p.kernel.flops / seconds), onclick: () => showGroup(model, p.group) });
    made.append(svg("title", {}, `group ${p.group.id}: ${clip(p.group.operators, 60)}\n${kind || "predicted"} ${short(seconds * 1e6)} us`));
    chart.append(made);
  };
  for (const p of points) {
    dot(p, predicted(p.kernel, roof), "");
    if (p.seconds) dot(p, p.seconds, "measured");
  }
  return chart;
}

function rooflineTable(model, roof) {
  const rows = kernelsOf(model).map(({ group, kernel }, k) => ({ group, kernel, guess: predicted(kernel, roof), seconds: model.measured[k] }));
  rows.sort((a, b) => (b.seconds ?? b.guess) - (a.seconds ?? a.guess));
  const row = (r) => [() => showGroup(model, r.group), r.group.id, r.kernel.symbol, clip(r.group.operators, 60), short(r.guess * 1e6),
    ...(r.seconds === undefined ? [] : [short(r.seconds * 1e6), short(r.seconds / r.guess)])];
  return table(["group", "kernel", "operators", "predicted us", ...(model.measured.length ? ["measured us", "times as long"] : [])], rows.slice(0, 500).map(row), [0, 3, 4, 5]);
}

// ---- the page ------------------------------------------------------------------------------------------------------

function head(models) {
  const rows = { target: (m) => `${m.target}, ${m.isa}, -O${m.opt_level}, fusion ${m.fusion}`, nodes: (m) => `${m.imported_nodes} imported, ${m.optimised_nodes} after passes`,
    launches: (m) => `${m.launches}, ${m.distinct_kernels} kernels`, work: (m) => `${flopsText(m.totals.flops)}, ${bytesText(m.totals.bytes)} moved`,
    memory: (m) => `arena ${bytesText(m.arena_bytes)}, weights ${bytesText(m.weights_bytes)}`, "sizes of 1": (m) => (m.loose ? `${m.loose.sizes.join(", ")}: ${m.loose.why ? `refused: ${m.loose.why}` : `a loose form, ${m.loose.launches} launches`}` : ""), variants: (m) => m.variants.map((v) => `${v.sizes}: ${v.why || `${v.launches} launches, ${v.kernels} more kernels`}`).join("; "), sizes: (m) => Object.entries(m.dims).map(([n, v]) => `${n}=${v}`).join(", ") + (m.unfit ? `; ${m.unfit}` : ""),
    measured: (m) => (m.measured.length ? `${short(m.measured.reduce((a, b) => a + b, 0) * 1e6)} us in kernels` : ""), fallbacks: (m) => m.fallbacks.join("; ") };
  const lines = Object.entries(rows).map(([name, text]) => [name, models.map(text)]).filter(([, texts]) => texts.some(Boolean));
  document.getElementById("head").append(el("h1", {}, models.map((m) => m.title).join("   |   ")),
    el("table", { class: "totals" }, ...lines.map(([name, texts]) => el("tr", {}, el("th", {}, name), ...texts.map((t) => el("td", {}, clip(t, 160)))))));
}

function show(name, models) {
  for (const tab of document.querySelectorAll("#tabs button")) tab.setAttribute("aria-selected", tab.textContent === name);
  window.torshc.graphs = [];
  const panes = models.map(() => el("div", { class: "pane" }));
  document.getElementById("view").replaceChildren(...panes);
  models.forEach((model, k) => TABS[name](model, panes[k]));
}

async function start() {
  window.torshc = {};
  const packed = Uint8Array.from(atob(document.getElementById("data").textContent), (c) => c.charCodeAt(0));
  const models = JSON.parse(await new Response(new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"))).text());
  head(models);
  for (const name of Object.keys(TABS)) document.getElementById("tabs").append(el("button", { onclick: () => show(name, models) }, name));
  show("Graph", models);
  document.body.dataset.ready = "yes";
}

start();
