// Draws a batch from its lengths. Rows are pulled by their ends, and cells travel into `data` when it is packed.
// JupyterLab calls `render` (through anywidget); a page without Python calls `mount`.

const FILLS = ["#56B4E9", "#E69F00", "#009E73", "#F0E442", "#0072B2", "#D55E00", "#CC79A7", "#882255"];
const DARK = ["#0072B2", "#882255"]; // fills that take white text
const STAGES = ["padded", "sorted", "without padding", "packed"];
const PACKED = STAGES.length - 1;
const MOST_SEQUENCES = 12; // that a reader can make; Python may give more
const MOST_CELLS = 300; // with more cells than these, a row is one shape, and so is a time step
const SMALLEST_TEXT = 11; // pixels

// ---- Numbers and words ----

/** Returns the name of a sequence: a to z, then aa, ab, and so on. */
export function sequenceName(index) {
  const letter = String.fromCharCode(97 + (index % 26));
  return index < 26 ? letter : sequenceName(Math.floor(index / 26) - 1) + letter;
}

/** Returns what follows from the lengths, as `pv.Layout` computes it. */
export function layoutOf(lengths) {
  const sorted = [...lengths.keys()].sort((i, j) => lengths[j] - lengths[i] || i - j);
  const unsorted = [];
  sorted.forEach((row, rank) => (unsorted[row] = rank));
  const steps = Math.max(...lengths);
  const batchSizes = [];
  const offsets = [0];
  for (let t = 0; t < steps; t++) {
    batchSizes.push(lengths.filter((length) => length > t).length);
    offsets.push(offsets[t] + batchSizes[t]);
  }
  return { sorted, unsorted, batchSizes, offsets, steps, real: offsets[steps], cells: lengths.length * steps };
}

/** Reads lengths that somebody typed, and throws an error that names what is wrong. */
export function parseLengths(text, most = MOST_SEQUENCES) {
  const words = text.replace(/^\s*\[(.*)\]\s*$/s, "$1").split(/[\s,;]+/).filter(Boolean);
  const wrong = words.find((word) => !/^[1-9]\d{0,2}$/.test(word));
  if (wrong !== undefined) throw new Error(`${wrong} is not a length; type whole numbers from 1 to 999, as in 4, 2, 7`);
  if (!words.length) throw new Error("there are no lengths; type some, as in 4, 2, 7");
  if (words.length > most) throw new Error(`these are ${words.length} lengths; type at most ${most}`);
  return words.map(Number);
}

const count = (number, noun) => `${number.toLocaleString("en")} ${noun}${number === 1 ? "" : "s"}`;

/** Returns a list as `pv.show` writes it. */
function listed(values) {
  if (values.length <= 24) return `[${values.join(", ")}]`;
  return `[${values.slice(0, 20).join(", ")}, …, ${values.slice(-3).join(", ")}] (${values.length} in all)`;
}

const percent = (part, whole) =>
  `${((100 * part) / whole).toLocaleString("en", { maximumSignificantDigits: 3, roundingMode: "halfEven" })} %`;

/** Returns the sentence with which `pv.show` begins, too. */
export function summary(lengths) {
  const { steps, real, cells } = layoutOf(lengths);
  const shape = `${count(lengths.length, "sequence")} padded to ${count(steps, "time step")}`;
  const padding = (cells - real).toLocaleString("en");
  return `${shape}: ${count(cells, "cell")}, ${real.toLocaleString("en")} real, ${padding} padding (${percent(cells - real, cells)} wasted).`;
}

export function describe(lengths) {
  const batch = layoutOf(lengths);
  const lines = [summary(lengths), ""];
  batch.batchSizes.forEach((size, t) => {
    const rows = batch.sorted.slice(0, size).map((row) => sequenceName(row) + t);
    const cells = batch.cells > MOST_CELLS ? "" : `  ${rows.join(" ")}`;
    lines.push(`t=${t}  batch_sizes[${t}] = ${size}  data[${batch.offsets[t]}:${batch.offsets[t + 1]}]${cells}`);
  });
  const lists = { lengths, batch_sizes: batch.batchSizes, sorted_indices: batch.sorted, unsorted_indices: batch.unsorted };
  lines.push("");
  for (const [name, values] of Object.entries(lists)) lines.push(`${name.padEnd(17)}[${values.join(", ")}]`);
  return lines.join("\n");
}

/** Returns a sentence about one stage of packing, or about one time step on its way into `data`. */
export function explain(lengths, progress, arriving) {
  const batch = layoutOf(lengths);
  const wasted = batch.cells - batch.real;
  const stage = Math.round(progress);
  if (progress > 2.02 && progress < PACKED) {
    const range = `data[${batch.offsets[arriving]}:${batch.offsets[arriving + 1]}]`;
    return `Step ${arriving}: these ${count(batch.batchSizes[arriving], "cell")} become ${range}.`;
  }
  if (stage === 0) {
    return `This rectangle has ${count(batch.cells, "cell")}. Only ${batch.real} hold data: ${percent(wasted, batch.cells)} of the work is for padding.`;
  }
  if (stage === 1) return "The longest sequence goes on top. Rows move as a whole; no cell changes.";
  if (stage === 2) return `Every column is now full from the top down, so the padding can go. ${count(batch.real, "cell")} are left.`;
  return `data holds ${count(batch.real, "row")}, and batch_sizes = ${listed(batch.batchSizes)} says where each step ends.`;
}

export function explainStep(lengths, t) {
  const running = layoutOf(lengths).batchSizes[t];
  const padding = lengths.length - running;
  return `At step ${t}, a padded run reads ${count(lengths.length, "cell")}, ${padding || "none"} of them padding. A packed run reads ${running}.`;
}

// ---- Geometry ----

/** Returns how many columns share a number of up to `largest`. */
const labelStride = (largest, cellWidth) => Math.ceil((8 * String(largest).length + 4) / cellWidth);

/** Returns the places of everything, for a width in pixels. Steps of `data` that do not fit begin a new line. */
export function geometryOf(lengths, width, longest) {
  const batch = layoutOf(lengths);
  const rows = lengths.length;
  const left = 58;
  const right = width < 560 ? 14 : 92;
  const cellWidth = Math.min(52, (width - left - right) / Math.max(longest, batch.steps));
  const cellHeight = Math.max(4, Math.min(30, 420 / rows));
  const top = 24;
  const sizesTop = top + rows * cellHeight + 18;
  const dataTop = sizesTop + 34;
  const isCoarse = batch.cells > MOST_CELLS;
  const gap = isCoarse ? 2 : 8;
  const dataWidth = Math.min(24, (width - 8) / rows, (14 * width) / batch.real);
  const dataHeight = isCoarse ? 10 : 24;
  const line = dataHeight + (isCoarse ? 4 : 22);
  const steps = [];
  let x = 2;
  let y = dataTop;
  for (const size of batch.batchSizes) {
    const needed = size * dataWidth;
    if (x > 2 && x + needed > width) {
      x = 2;
      y += line;
    }
    steps.push({ x, y });
    x += needed + gap;
  }
  const labelEvery = labelStride(Math.max(batch.steps - 1, rows), cellWidth);
  return { width, left, cellWidth, cellHeight, top, sizesTop, dataTop, isCoarse, dataWidth, dataHeight, steps, labelEvery, height: y + line + 4 };
}

// ---- The picture ----

const SVG = "http://www.w3.org/2000/svg";

function shape(tag, attributes = {}, text = undefined) {
  const node = document.createElementNS(SVG, tag);
  change(node, attributes);
  if (text !== undefined) node.textContent = text;
  return node;
}

/** Sets only the attributes that differ, so an unchanged part of a frame costs nothing. */
function change(node, attributes) {
  node.drawn ??= {};
  for (const [name, value] of Object.entries(attributes)) {
    if (node.drawn[name] !== value) node.setAttribute(name, (node.drawn[name] = value));
  }
}

const clamp = (value, low, high) => Math.max(low, Math.min(high, value));
const between = (from, to, share) => Math.round(100 * (from + (to - from) * share)) / 100;

function smooth(share) {
  const x = clamp(share, 0, 1);
  return x * x * (3 - 2 * x);
}

let pictures = 0;

/** A batch as SVG, at any moment between padded and packed. */
class Picture {
  constructor(svg) {
    this.svg = svg;
    this.hatch = `pv-batch-hatch-${pictures++}`;
    const pattern = shape("pattern", { id: this.hatch, width: 7, height: 7, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)" });
    pattern.append(shape("rect", { width: 7, height: 7, class: "padding" }), shape("path", { d: "M0 0V7", class: "hatch" }));
    this.layers = Object.fromEntries(["rows", "cells", "words", "cursor", "ends"].map((name) => [name, shape("g")]));
    svg.append(pattern, ...Object.values(this.layers));
    this.cursor = shape("rect", { class: "cursor" });
    this.layers.cursor.append(this.cursor);
  }

  /** Makes all shapes for these lengths. `draw` puts them in their places. */
  build(lengths, width, longest) {
    this.lengths = lengths;
    this.batch = layoutOf(lengths);
    this.geometry = geometryOf(lengths, width, longest);
    this.rows = lengths.map((length, row) => this.makeRow(length, row));
    this.columns = this.batch.batchSizes.map((size, t) => this.makeColumn(size, t));
    const { words, rows, cells } = this.layers;
    rows.replaceChildren(...this.rows.map((row) => row.back));
    // A cell travels downwards, so the upper rows are painted later.
    const fronts = this.batch.sorted.map((row) => this.rows[row].front).reverse();
    const blocks = this.columns.flatMap((column) => (column.block ? [column.veil, column.block] : []));
    cells.replaceChildren(...fronts, ...blocks);
    const { left, cellWidth, sizesTop, dataTop, height } = this.geometry;
    this.sizesTitle = shape("text", { x: left + this.batch.steps * cellWidth + 8, y: sizesTop, class: "quiet" }, "batch_sizes");
    this.dataTitle = shape("text", { x: 2, y: dataTop - 9, class: "strong" });
    this.slot = shape("rect", { x: 1, y: dataTop, width: width - 2, height: height - dataTop - 12, class: "slot" });
    words.replaceChildren(...this.columns.flatMap((column) => column.words), this.sizesTitle, this.dataTitle, this.slot);
    change(this.svg, { viewBox: `0 0 ${width} ${height}` });
  }

  makeRow(length, row) {
    const { left, cellWidth, cellHeight, isCoarse } = this.geometry;
    const fill = FILLS[row % FILLS.length];
    const back = shape("g");
    const front = shape("g");
    const padding = shape("g");
    const paddingSteps = this.batch.steps - length;
    if (paddingSteps) {
      const x = left + length * cellWidth;
      padding.append(shape("rect", { x, width: paddingSteps * cellWidth, height: cellHeight, fill: `url(#${this.hatch})`, class: "edge" }));
      const lines = Array.from({ length: isCoarse ? 0 : paddingSteps - 1 }, (_, i) => `M${x + (i + 1) * cellWidth} 0v${cellHeight}`);
      padding.append(shape("path", { d: lines.join(""), class: "edge" }));
    }
    back.append(shape("rect", { x: left, width: length * cellWidth, height: cellHeight, fill, opacity: 0.2 }), padding);
    if (cellHeight >= SMALLEST_TEXT || row % Math.ceil(12 / cellHeight) === 0) {
      const y = cellHeight / 2 + 4.5;
      back.append(shape("text", { x: 4, y, class: "strong" }, sequenceName(row)), shape("text", { x: left - 8, y, class: "quiet end" }, length));
    }
    if (isCoarse) front.append(shape("rect", { x: left, width: length * cellWidth, height: cellHeight, fill }));
    return { back, front, padding };
  }

  makeColumn(size, t) {
    const { left, cellWidth, cellHeight, top, sizesTop, steps, dataWidth, dataHeight, isCoarse, labelEvery } = this.geometry;
    const middle = left + (t + 0.5) * cellWidth;
    const range = `${this.batch.offsets[t]}:${this.batch.offsets[t + 1]}`;
    const column = {
      arrived: -1,
      head: shape("text", { x: middle, y: top - 8, class: "quiet middle" }, t),
      size: shape("text", { x: middle, y: sizesTop, class: "strong middle" }, size),
      range: shape("text", { x: steps[t].x, y: steps[t].y + dataHeight + 14, class: "quiet" }, range),
      cells: [],
    };
    column.words = t % labelEvery ? [] : [column.head, column.size];
    if (!isCoarse && size * dataWidth >= 7 * range.length) column.words.push(column.range);
    if (isCoarse) {
      column.veil = shape("rect", { x: left + t * cellWidth, y: top, width: cellWidth + 0.5, height: size * cellHeight, class: "veil" });
      column.block = shape("rect", { class: "block edge" });
      return column;
    }
    for (const row of this.batch.sorted.slice(0, size)) {
      const group = shape("g");
      const fill = FILLS[row % FILLS.length];
      const box = shape("rect", { fill, class: "edge" });
      const text = shape("text", { class: "middle cell", fill: DARK.includes(fill) ? "#fff" : "#000" }, sequenceName(row) + t);
      group.append(box, text);
      this.rows[row].front.append(group);
      column.cells.push({ group, box, text });
    }
    return column;
  }

  rowTop(row, progress) {
    const { top, cellHeight } = this.geometry;
    return between(top + row * cellHeight, top + this.batch.unsorted[row] * cellHeight, smooth(progress));
  }

  /** Draws one moment: 0 is padded, 1 sorted, 2 without padding, and 3 packed. */
  draw(progress, cursor) {
    const leaving = smooth(progress - 1);
    this.rows.forEach(({ back, front, padding }, row) => {
      const place = { transform: `translate(0 ${this.rowTop(row, progress)})` };
      change(back, place);
      change(front, place);
      change(padding, { opacity: 1 - leaving });
    });
    this.columns.forEach((column, t) => this.drawColumn(column, t, progress));
    const arrived = this.columns.filter((column) => column.arrived === 1).length;
    const inPlace = this.batch.offsets[arrived];
    change(this.sizesTitle, { opacity: progress >= 2 && this.geometry.width >= 560 ? 1 : 0 });
    this.dataTitle.textContent = `data: ${inPlace} of ${count(this.batch.real, "row")}`;
    change(this.slot, { opacity: progress > 2 ? 0 : 1 });
    this.drawCursor(progress, cursor);
    return Math.min(arrived, this.batch.steps - 1);
  }

  drawColumn(column, t, progress) {
    const { left, cellWidth, cellHeight, top, steps, dataWidth, dataHeight, isCoarse } = this.geometry;
    const front = (progress - 2) * (this.batch.steps + 1);
    const share = smooth((front - t) / 1.5);
    change(column.size, { opacity: progress < 2 ? 0 : Math.min(1, 0.3 + 2 * share) });
    change(column.range, { opacity: share === 1 ? 1 : 0 });
    if (share === column.arrived) return;
    column.arrived = share;
    const { x, y } = steps[t];
    const size = this.batch.batchSizes[t];
    const width = between(cellWidth, dataWidth, share);
    const height = between(cellHeight, dataHeight, share);
    if (isCoarse) {
      change(column.veil, { opacity: share > 0 ? 0.8 : 0 });
      change(column.block, {
        opacity: share > 0 ? 1 : 0,
        x: between(left + t * cellWidth, x, share),
        y: between(top, y, share),
        width: between(cellWidth, size * dataWidth, share),
        height: between(size * cellHeight, dataHeight, share),
      });
      return;
    }
    column.cells.forEach(({ group, box, text }, rank) => {
      const toX = between(left + t * cellWidth, x + rank * dataWidth, share);
      const toY = between(0, y - top - rank * cellHeight, share);
      change(group, { transform: `translate(${toX} ${toY})` });
      change(box, { width, height });
      change(text, { x: width / 2, y: height / 2 + 4, visibility: width < 20 || height < 12 ? "hidden" : "visible" });
    });
  }

  drawCursor(progress, cursor) {
    const { left, cellWidth, cellHeight, top, steps, dataWidth, dataHeight } = this.geometry;
    const isShown = cursor >= 0 && cursor < this.batch.steps;
    change(this.cursor, { visibility: isShown ? "visible" : "hidden" });
    if (!isShown) return;
    const size = progress < 2 ? this.lengths.length : this.batch.batchSizes[cursor];
    const column = { x: left + cursor * cellWidth, y: top, width: cellWidth, height: size * cellHeight };
    const rows = { ...steps[cursor], width: size * dataWidth, height: dataHeight };
    change(this.cursor, progress === PACKED ? rows : column);
  }
}

// ---- The panel ----

const PANEL = `
<div class="bar"><button class="play"></button><button class="back"></button>
<label class="track"><input class="progress" type="range" min="0" max="3" step="0.01" aria-label="progress of packing">
<span class="stages" aria-hidden="true"></span></label></div>
<p class="says" role="status"></p><p class="wrong" role="alert"></p>
<div class="figure"><svg role="group" aria-label="the batch"></svg></div>
<div class="bar"><label>lengths <input class="typed" size="22" spellcheck="false" autocomplete="off"></label>
<label class="draws">from <select class="kind"><option value="">your own</option></select></label>
<label class="draws">seed <input class="seed" type="number" min="0" max="9" value="0"></label>
<span><button class="fewer" aria-label="remove the last sequence">−</button> <span class="number"></span>
<button class="more" aria-label="add a sequence">+</button></span>
<label>time step <input class="step" type="range" min="-1" value="-1"></label></div>
<details><summary>Picture as text</summary><pre tabindex="0"></pre></details>`;

/** The picture with its controls. `store` holds the values that Python knows, too. */
class BatchPanel {
  constructor(element, store) {
    this.store = store;
    this.root = document.createElement("div");
    this.root.className = "pv-batch packviz";
    this.root.innerHTML = PANEL;
    element.append(this.root);
    const parts = [...this.root.querySelectorAll("[class]")];
    this.parts = Object.fromEntries(parts.map((part) => [part.className, part]));
    this.parts.text = this.root.querySelector("pre");
    this.parts.stages.innerHTML = STAGES.map((stage) => `<span>${stage}</span>`).join("");
    this.picture = this.makePicture(this.root.querySelector("svg"));
    this.ends = [];
    this.progress = store.get("progress");
    this.direction = 0; // 1 while it packs, -1 while it pads again
    this.held = 0; // the height that stays while a row is pulled
    this.paper = matchMedia("print");
    this.lengths = [...store.get("lengths")];
    this.width = this.parts.figure.clientWidth;
    this.offerDraws();
    this.listen();
    this.build();
  }

  // -- What state.js does in its own way

  makePicture(svg) {
    return new Picture(svg);
  }

  last() {
    return PACKED;
  }

  speed() {
    const dataSeconds = clamp(0.5 * this.picture.batch.steps, 2, 6);
    return this.progress < 2 ? 0.75 : 1 / dataSeconds;
  }

  words() {
    return describe(this.lengths);
  }

  // -- Drawing

  build() {
    const { parts, lengths } = this;
    this.picture.build(lengths, Math.max(280, this.width || 860), this.longest());
    while (this.ends.length > lengths.length) this.ends.pop().remove();
    while (this.ends.length < lengths.length) this.ends.push(this.makeEnd(this.ends.length));
    // A page must not move under a pointer that pulls.
    this.picture.svg.style.height = `${Math.max(this.picture.geometry.height, this.held)}px`;
    if (this.root.getRootNode().activeElement !== parts.typed) parts.typed.value = lengths.join(", ");
    parts.number.textContent = count(lengths.length, "sequence");
    parts.fewer.disabled = lengths.length <= 1;
    parts.more.disabled = lengths.length >= MOST_SEQUENCES;
    parts.step.max = this.picture.batch.steps - 1;
    parts.text.textContent = this.words();
    this.draw();
  }

  draw() {
    const { parts, lengths, picture } = this;
    const progress = this.paper.matches ? PACKED : this.progress;
    const cursor = Number(parts.step.value);
    const arriving = picture.draw(progress, cursor);
    this.drawEnds(progress);
    this.say(cursor >= 0 ? explainStep(lengths, cursor) : explain(lengths, progress, arriving));
    const stage = Math.round(progress);
    [...parts.stages.children].forEach((name, i) => name.classList.toggle("now", i === stage));
    if (Number(parts.progress.value) !== progress) parts.progress.value = progress;
    parts.progress.setAttribute("aria-valuetext", STAGES[stage]);
    parts.step.setAttribute("aria-valuetext", cursor >= 0 ? `step ${cursor}` : "no step");
    parts.play.textContent = this.direction > 0 ? "❚❚ Pause" : "▶ Pack it";
    parts.back.textContent = this.direction < 0 ? "❚❚ Pause" : "◀ Pad again";
    parts.play.disabled = progress >= PACKED && !this.direction;
    parts.back.disabled = progress <= 0 && !this.direction;
    this.root.dataset.progress = progress;
  }

  /** Writes a sentence, which a screen reader hears once. */
  say(sentence) {
    const { says } = this.parts;
    if (says.textContent !== sentence) says.textContent = sentence;
  }

  drawEnds(progress) {
    const { lengths, picture } = this;
    const { left, cellWidth, cellHeight } = picture.geometry;
    this.ends.forEach((end, row) => {
      const x = between(left, left + cellWidth, lengths[row]);
      change(end, {
        transform: `translate(${x} ${picture.rowTop(row, progress)})`,
        "aria-label": `length of sequence ${sequenceName(row)}`,
        "aria-valuenow": lengths[row],
        "aria-valuemax": this.longest(),
        "aria-valuetext": count(lengths[row], "time step"),
      });
      for (const part of end.children) change(part, { height: cellHeight });
    });
  }

  longest() {
    return Math.max(this.store.get("longest"), ...this.lengths);
  }

  // -- Values

  setLengths(lengths, keepsKind = false) {
    if (!keepsKind) this.parts.kind.value = "";
    this.parts.wrong.textContent = "";
    this.lengths = lengths;
    this.store.set("lengths", lengths);
    this.parts.step.value = Math.min(Number(this.parts.step.value), Math.max(...lengths) - 1);
    this.build();
  }

  pull(row, length) {
    const wanted = clamp(length, 1, this.longest());
    if (wanted !== this.lengths[row]) this.setLengths(this.lengths.map((old, i) => (i === row ? wanted : old)));
  }

  setProgress(progress, isFinal = true) {
    this.progress = clamp(progress, 0, this.last());
    this.draw();
    if (!isFinal) return; // Python hears of the end of a movement only
    this.store.set("progress", this.progress);
  }

  // -- Movement

  stop() {
    cancelAnimationFrame(this.frame);
    this.direction = 0;
    this.setProgress(this.progress);
  }

  toggle(direction) {
    const wasMoving = this.direction;
    this.stop();
    if (wasMoving === direction) return;
    if (matchMedia("(prefers-reduced-motion: reduce)").matches) {
      this.setProgress(direction > 0 ? Math.floor(this.progress + 1) : Math.ceil(this.progress - 1));
      return;
    }
    this.direction = direction;
    this.before = performance.now();
    this.frame = requestAnimationFrame((now) => this.move(now));
  }

  move(now) {
    const seconds = (now - this.before) / 1000;
    this.before = now;
    this.setProgress(this.progress + this.direction * this.speed() * seconds, false);
    const isDone = this.direction > 0 ? this.progress >= this.last() : this.progress <= 0;
    if (isDone || !this.root.isConnected) this.stop();
    else this.frame = requestAnimationFrame((later) => this.move(later));
  }

  // -- Input

  makeEnd(row) {
    const end = shape("g", { class: "row-end", tabindex: 0, role: "slider", "aria-valuemin": 1 });
    end.append(shape("rect", { x: -12, width: 24, class: "target" }), shape("rect", { x: -2, width: 4, rx: 2, class: "knob" }));
    end.addEventListener("keydown", (event) => {
      const length = this.lengths[row];
      const wanted = { ArrowRight: length + 1, ArrowUp: length + 1, ArrowLeft: length - 1, ArrowDown: length - 1, Home: 1, End: this.longest() }[event.key];
      if (wanted === undefined) return;
      event.preventDefault();
      this.pull(row, wanted);
    });
    end.addEventListener("pointerdown", (event) => {
      if (event.button) return;
      event.preventDefault(); // no text is selected, so the focus has to be asked for
      end.focus({ preventScroll: true });
      end.setPointerCapture(event.pointerId);
      this.held = this.picture.geometry.height;
      this.stop();
    });
    end.addEventListener("pointermove", (event) => {
      if (!end.hasPointerCapture(event.pointerId)) return;
      const box = this.picture.svg.getBoundingClientRect();
      const { width, left, cellWidth } = this.picture.geometry;
      const x = ((event.clientX - box.left) * width) / box.width;
      this.pull(row, Math.round((x - left) / cellWidth));
    });
    end.addEventListener("lostpointercapture", () => {
      this.held = 0;
      this.build();
    });
    this.picture.layers.ends.append(end);
    return end;
  }

  offerDraws() {
    const draws = this.store.get("draws") ?? {};
    for (const kind of Object.keys(draws)) this.parts.kind.add(new Option(kind));
    for (const label of this.root.querySelectorAll(".draws")) label.hidden = !Object.keys(draws).length;
  }

  drawLengths() {
    const draws = this.store.get("draws")?.[this.parts.kind.value];
    if (!draws) return;
    const { seed } = this.parts;
    const chosen = draws[seed.valueAsNumber];
    const rows = this.lengths.length;
    if (!chosen) this.refuse(`seed is ${seed.value || "not a number"}; type a whole number from 0 to ${draws.length - 1}`);
    else if (chosen.length < rows) this.refuse(`there are ${rows} sequences; remove ${rows - chosen.length} to draw lengths`);
    else this.setLengths(chosen.slice(0, rows), true);
  }

  readTyped() {
    try {
      this.setLengths(parseLengths(this.parts.typed.value, Math.max(MOST_SEQUENCES, this.lengths.length)));
    } catch (error) {
      this.refuse(error.message);
    }
  }

  refuse(problem) {
    this.parts.wrong.textContent = `✗ ${problem}. The picture shows the last good input.`;
  }

  listen() {
    const { parts } = this;
    const on = (part, event, act) => parts[part].addEventListener(event, act);
    on("play", "click", () => this.toggle(1));
    on("back", "click", () => this.toggle(-1));
    on("progress", "input", () => {
      const wanted = Number(parts.progress.value);
      this.stop();
      this.setProgress(wanted, false);
    });
    on("progress", "change", () => this.setProgress(this.progress));
    on("step", "input", () => this.draw());
    on("typed", "input", () => this.readTyped());
    on("kind", "input", () => this.drawLengths());
    on("seed", "input", () => this.drawLengths());
    on("fewer", "click", () => this.setLengths(this.lengths.slice(0, -1)));
    on("more", "click", () => this.setLengths([...this.lengths, Math.min(5, this.longest())]));
    this.root.addEventListener("keydown", (event) => this.onKey(event));
    const redraw = () => this.draw();
    this.paper.addEventListener("change", redraw);
    const observer = new ResizeObserver(([entry]) => this.resize(Math.round(entry.contentRect.width)));
    observer.observe(parts.figure);
    const unsubscribe = [
      this.store.on("lengths", () => this.followLengths()),
      this.store.on("progress", () => this.followProgress()),
      this.store.on("longest", () => this.build()),
    ];
    this.release = () => {
      cancelAnimationFrame(this.frame);
      this.paper.removeEventListener("change", redraw);
      observer.disconnect();
      for (const end of unsubscribe) end();
      this.root.remove();
    };
  }

  /** JupyterLab takes plain keys for commands on the cell: a, b, x and d d would destroy cells. */
  onKey(event) {
    if (event.key === " " && event.target.matches(".row-end, .progress")) {
      event.preventDefault();
      this.toggle(this.progress >= this.last() ? -1 : 1);
    }
    const isForLab = event.ctrlKey || event.metaKey || event.altKey || event.key === "Escape" || (event.shiftKey && event.key === "Enter");
    if (!isForLab) event.stopPropagation();
  }

  /** A hidden output has no width. */
  resize(width) {
    if (width < 50 || Math.abs(width - this.width) <= 1) return;
    this.width = width;
    requestAnimationFrame(() => this.build());
  }

  followLengths() {
    const lengths = [...this.store.get("lengths")];
    if (String(lengths) === String(this.lengths)) return;
    this.lengths = lengths;
    this.parts.kind.value = "";
    this.parts.wrong.textContent = "";
    this.build();
  }

  followProgress() {
    if (this.direction || this.store.get("progress") === this.progress) return;
    this.progress = this.store.get("progress");
    this.draw();
  }
}

// ---- Entry points ----

const KINDS = { batch: BatchPanel };

export function mount(element, state = {}) {
  const values = { kind: "batch", lengths: [4, 6, 8, 5, 4, 3, 7, 8], longest: 10, progress: 0, draws: {}, ...state };
  const panel = new KINDS[values.kind](element, {
    get: (name) => values[name],
    set: (name, value) => void (values[name] = value),
    on: () => () => {},
  });
  return { values, panel };
}

function render({ model, el }) {
  const panel = new KINDS[model.get("kind")](el, {
    get: (name) => model.get(name),
    set: (name, value) => {
      model.set(name, value);
      model.save_changes();
    },
    on: (name, callback) => {
      model.on(`change:${name}`, callback);
      return () => model.off(`change:${name}`, callback);
    },
  });
  return () => panel.release();
}
export default { render };
