// What moves on a page. Without it, every page still has its text and pictures.
const here = new URL(".", document.currentScript.src).href;
const load = (name) =>
  new Promise((done, failed) => {
    document.head.append(Object.assign(document.createElement("script"), { src: here + name, onload: done, onerror: failed }));
  });
const isDark = () => getComputedStyle(document.body).getPropertyValue("--dark") !== "";

// The menu shows this page.
document.querySelector("#menu [aria-current]")?.scrollIntoView({ block: "nearest" });

// Code that a reader can skip is folded. One click shows all of a page.
const folds = [...document.querySelectorAll(".pv-code")];
const unfold = document.querySelector(".pv-unfold");
if (unfold && folds.length) {
  unfold.hidden = false;
  unfold.addEventListener("click", () => {
    const open = folds.some((fold) => !fold.open);
    for (const fold of folds) fold.open = open;
    unfold.textContent = open ? "Fold the code again" : "Show all code";
  });
}

// Long names may break after these signs, and between words.
for (const code of document.querySelectorAll("td :is(code, a)")) code.innerHTML = code.innerHTML.replace(/\w{3}[_.=(\/](?=\w\w)|[a-z](?=[A-Z])/g, "$&<wbr>");

// What scrolls sideways says so.
const boxes = document.querySelectorAll(".pv-picture, .pv-chart, .pv-table, .pv-columns");
const mark = () => boxes.forEach((box) => box.toggleAttribute("data-scrolls", box.scrollWidth > box.clientWidth + 1));
addEventListener("resize", mark);
addEventListener("load", mark);
document.addEventListener("toggle", mark, true);

// On paper, nothing unfolds.
addEventListener("beforeprint", () => document.querySelectorAll(".pv-entry, .pv-table details").forEach((fold) => (fold.open = true)));

// Quizzes: a choice, the button, the feedback to that choice.
for (const quiz of document.querySelectorAll(".pv-quiz")) {
  const [check, feedback] = [quiz.querySelector("button"), quiz.querySelector("[role=status]")];
  quiz.addEventListener("change", () => {
    check.disabled = false;
    feedback.textContent = "";
  });
  quiz.addEventListener("submit", (event) => event.preventDefault());
  check.addEventListener("click", () => {
    const label = quiz.querySelector("input:checked").parentElement;
    const { why, right } = label.dataset;
    const [kind, verdict] = right === undefined ? ["wrong", "✗ Not this one."] : ["right", "✓ Right."];
    for (const other of quiz.querySelectorAll("label")) other.className = "";
    label.className = feedback.className = kind;
    feedback.innerHTML = `<b>${verdict}</b> `;
    feedback.append(why);
  });
}

// Panels: controls that move through frames.
for (const panel of document.querySelectorAll(".pv-panel")) {
  const key = panel.dataset.key;
  const controls = [...panel.querySelectorAll(".pv-controls label")].map((label) => {
    const input = label.querySelector("input, select");
    const [output, values] = [label.querySelector("output"), input.dataset.values?.split(" ")];
    const property = { range: "value", checkbox: "checked" }[input.type] ?? "selectedIndex";
    return {
      label,
      get at() {
        return Number(input[property]);
      },
      set at(index) {
        input[property] = property === "checked" ? Boolean(index) : index;
        if (output) input.setAttribute("aria-valuetext", (output.value = values[index]));
      },
    };
  });
  const parts = [".pv-picture, .pv-table", ".summary", ".error", "details pre"].map((part) => panel.querySelector(part));
  let ready;
  const get = () => (ready ??= load(`frames/${key}.js`));
  const show = async () => {
    await get();
    const { places, frames, pieces } = packvizFrames[key];
    let place = places;
    for (const control of controls) {
      control.label.hidden = "*" in place;
      if (control.label.hidden) {
        place = place["*"];
        continue;
      }
      const wanted = control.at; // where the panel would move the control to fit, the nearest place
      const nearest = Object.keys(place).reduce((one, other) => (Math.abs(other - wanted) < Math.abs(one - wanted) ? other : one));
      control.at = Number(nearest);
      place = place[nearest];
    }
    const wrong = frames[place][2].length > 0; // then the last good picture stays, as the error says
    frames[place].forEach((frame, i) => {
      const html = frame.map((piece) => pieces[piece]).join("");
      if ((!wrong || i === 2) && parts[i].innerHTML !== html) parts[i].innerHTML = html;
    });
    mark();
  };
  panel.addEventListener("pointerenter", get, { once: true });
  panel.addEventListener("focusin", get, { once: true });
  panel.querySelector(".pv-controls").addEventListener("input", show);
}

// Charts: the stored image, until the reader asks for its values. Then plotly draws it.
const light = new RegExp(Object.keys(packvizDark).join("|"), "g");
let plotly;
async function draw(chart) {
  await (plotly ??= load("plotly.min.js"));
  const text = chart.querySelector("script").textContent;
  const { data, layout, config } = JSON.parse(isDark() ? text.replace(light, (colour) => packvizDark[colour]) : text);
  const place = chart.querySelector(".pv-drawn");
  const canvas = place.querySelector("div") ?? place.appendChild(document.createElement("div"));
  canvas.setAttribute("aria-hidden", "true"); // the image keeps the words
  await Plotly.react(canvas, data, layout, config);
  chart.dataset.drawn = "";
}
const charts = [...document.querySelectorAll(".pv-chart")];
for (const chart of charts) {
  const button = chart.querySelector("button");
  button.addEventListener("click", async () => {
    button.disabled = true;
    await draw(chart);
    button.remove();
    chart.focus();
  });
}

// The theme. What plotly drew is drawn again.
const follow = () => {
  for (const chart of charts) if ("drawn" in chart.dataset) draw(chart);
};
const system = matchMedia("(prefers-color-scheme: dark)");
system.addEventListener("change", follow);
const theme = document.querySelector(".pv-theme");
theme.hidden = false;
theme.addEventListener("click", () => {
  const other = isDark() ? "light" : "dark";
  localStorage.theme = document.documentElement.dataset.theme = isDark() === system.matches ? other : "";
  follow();
});

// A button copies code, without prompts and results.
for (const code of document.querySelectorAll(".highlight pre")) {
  const button = Object.assign(document.createElement("button"), { type: "button", textContent: "Copy" });
  button.addEventListener("click", async () => {
    const copy = code.cloneNode(true);
    copy.querySelectorAll(".gp, .go").forEach((part) => part.remove());
    await navigator.clipboard.writeText(copy.textContent.trim());
    button.textContent = "Copied";
  });
  code.after(button);
}

// The search, which needs a server to read its index.
const search = document.querySelector(".pv-search");
if (search && location.protocol !== "file:") {
  search.replaceChildren();
  const words = new URLSearchParams(location.search).get("q") ?? "";
  new PagefindUI({ element: search, showSubResults: true, showImages: false }).triggerSearch(words);
}
