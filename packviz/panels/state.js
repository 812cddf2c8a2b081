
// Continues batch.js: a small LSTM runs on the padded and on the packed batch.

const UNIT = 0; // of the hidden state, which is drawn
const rounded = (state) => state.toFixed(2).replace("-", "−");

/** Returns each row's hidden states after 0, 1, 2 … steps of the padded batch. */
export function paddedStates(weights, x, lengths) {
  const { weight_ih_l0: input, weight_hh_l0: hidden, bias_ih_l0, bias_hh_l0 } = weights;
  const bias = bias_ih_l0.map((value, i) => value + bias_hh_l0[i]);
  const units = bias.length / 4;
  const sigmoid = (value) => 1 / (1 + Math.exp(-value));
  const dot = (row, values) => values.reduce((sum, value, i) => sum + row[i] * value, 0);
  return lengths.map((length, row) => {
    let h = Array(units).fill(0);
    let c = h;
    const states = [h];
    for (let t = 0; t < Math.max(...lengths); t++) {
      const step = t < length ? x[row][t] : [0, 0];
      const gates = bias.map((start, i) => start + dot(input[i], step) + dot(hidden[i], h)); // input, forget, cell, output
      const gate = (kind, unit) => sigmoid(gates[kind * units + unit]);
      c = c.map((old, unit) => gate(1, unit) * old + gate(0, unit) * Math.tanh(gates[2 * units + unit]));
      h = c.map((value, unit) => gate(3, unit) * Math.tanh(value));
      states.push(h);
    }
    return states;
  });
}

class StatePicture extends Picture {
  build(lengths, width, longest) {
    this.batch = layoutOf(lengths);
    this.lengths = lengths;
    this.states = paddedStates(this.weights, this.x, lengths).map((states) => states.map((h) => h[UNIT]));
    const cellWidth = (width - 172) / longest;
    this.geometry = { width, left: 58, top: 24, cellWidth, cellHeight: 72, height: 24 + 80 * lengths.length };
    const word = (t, text) => shape("text", { x: 58 + (t + 0.5) * cellWidth, y: 16, class: "quiet middle" }, text);
    const every = labelStride(this.batch.steps - 1, cellWidth);
    const steps = [...this.batch.batchSizes.keys()];
    this.layers.words.replaceChildren(...steps.filter((t) => t % every === 0).map((t) => word(t, t)));
    this.rows = lengths.map((length, row) => this.makeRow(length, row));
    this.layers.rows.replaceChildren(...this.rows.map(({ back }) => back));
    change(this.svg, { viewBox: `0 0 ${width} ${this.geometry.height}` });
  }

  makeRow(length, row) {
    const { left, cellHeight } = this.geometry;
    const { back, padding } = super.makeRow(length, row);
    const end = left + this.batch.steps * this.geometry.cellWidth + 10;
    change(back, { transform: `translate(0 ${this.rowTop(row)})` });
    const lines = ["padded", "packed"].map((name) => shape("path", { class: `state ${name}`, stroke: FILLS[row % FILLS.length] }));
    const ends = [30, 50].map((y) => shape("text", { x: end, y, class: "end-state" }));
    back.append(shape("path", { d: `M${left} ${cellHeight / 2}H${end - 10}`, class: "edge" }), ...lines, ...ends);
    return { back, padding, lines, ends };
  }

  rowTop(row) {
    return 24 + 80 * row;
  }

  /** Returns the state of a row at a moment, which may lie between two steps. */
  at(row, time) {
    const [before, after = before] = this.states[row].slice(Math.floor(time));
    return before + (after - before) * (time % 1);
  }

  draw(progress) {
    const { left, cellWidth } = this.geometry;
    this.rows.forEach(({ lines, ends }, row) => {
      const stops = [this.batch.steps, this.lengths[row]];
      lines.forEach((line, i) => {
        const point = (t) => `${left + t * cellWidth} ${36 - 90 * this.at(row, Math.min(t, stops[i]))}`;
        change(line, { d: `M${[...Array(Math.floor(progress) + 1).keys(), progress].map(point).join("L")}` });
      });
      const [padded, packed] = this.ends(row);
      const isRight = padded === packed;
      const words = [`packed ${packed}`, `padded ${padded}${isRight ? "" : " ✗"}`];
      ends.forEach((end, i) => (end.textContent = progress === this.batch.steps ? words[i] : ""));
      change(ends[1], { class: isRight ? "end-state" : "end-state wrong-state" });
    });
  }

  /** Returns a row's final state, padded and packed. */
  ends(row) {
    return [this.batch.steps, this.lengths[row]].map((t) => rounded(this.states[row][t]));
  }
}

KINDS.state = class extends BatchPanel {
  makePicture(svg) {
    for (const part of this.root.querySelectorAll(".back, .stages, .bar:last-of-type")) part.hidden = true;
    this.parts.progress.setAttribute("aria-label", "time steps read");
    return Object.assign(new StatePicture(svg), { weights: this.store.get("weights"), x: this.store.get("x") });
  }

  last() {
    return Math.max(...this.lengths);
  }

  speed() {
    return 1.2; // steps a second
  }

  words() {
    return this.lengths.map((_, row) => `${sequenceName(row)}: h_n[${UNIT}] = ${this.picture.ends(row).join(" padded, ")} packed`).join("\n");
  }

  setLengths(lengths) {
    // A finished run stays finished while the reader pulls.
    this.progress = this.progress >= this.last() ? Math.max(...lengths) : Math.min(this.progress, ...lengths);
    super.setLengths(lengths);
  }

  draw() {
    const { parts, picture } = this;
    const progress = this.paper.matches ? this.last() : Math.min(this.progress, this.last());
    const t = Math.floor(progress);
    picture.draw(progress);
    this.drawEnds(progress);
    const moves = this.lengths.flatMap((length, row) => {
      const [before, after] = picture.states[row].slice(t - 1).map(rounded);
      return length < t ? `${sequenceName(row)} from ${before} to ${after}` : [];
    });
    let sentence = t ? `Step ${t - 1}: ${moves.length ? `padding moves ${moves.join(", ")}. Packed, they stay` : "both runs read data"}.` : "Press play.";
    if (progress === this.last()) sentence += " Here, the padded run takes h_n.";
    this.say(sentence);
    parts.progress.max = this.last();
    parts.progress.value = progress;
    parts.play.textContent = this.direction ? "❚❚ Pause" : "▶ Play";
    this.root.dataset.progress = progress;
  }

  /** At the end, play begins again. */
  toggle() {
    if (this.progress >= this.last()) this.setProgress(0, false);
    super.toggle(1);
  }
};
