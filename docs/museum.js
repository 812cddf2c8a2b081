// The search of the error museum. It finds what `pv.explain` finds (packviz/check/museum.py), and a test compares them.
const { entries, packing, error, idle, doubts } = JSON.parse(document.querySelector(".pv-museum script").textContent);
const inJavaScript = (pattern) => pattern.replaceAll("(?P<", "(?<").replaceAll("\\A", "^").replaceAll("\\Z", "$");
const has = (pattern, text) => new RegExp(inJavaScript(pattern), "i").exec(text);

function fits(rule, text) {
  const match = has(rule.text, text);
  if (!match || !has(rule.near, text)) return false;
  if (rule.unless && has(rule.unless, text)) return false;
  if (rule.unsure && text.trim().includes("\n") && !has(packing, text)) return false;
  if (!match.groups) return true;
  const [less, more] = [Number(match.groups.less), Number(match.groups.more)];
  return less < more && more < 2 * less;
}

function byRules(text) {
  const [sure, unsure] = [false, true].map((kind) =>
    entries.filter(({ rules }) => rules.some((rule) => rule.unsure === kind && fits(rule, text)))
  );
  const found = (sure.length ? sure : unsure).slice(0, 3);
  return { found, doubt: sure.length === 1 || !found.length ? "" : doubts[0] };
}

const wordsOf = (text) =>
  new Set((text.toLowerCase().match(/[a-z_]{3,}/g) ?? []).filter((word) => !idle.includes(` ${word} `)).map((word) => word.replace(/s+$/, "")));

function byWords(text) {
  const titles = entries.map((entry) => wordsOf(`${entry.name} ${entry.words}`));
  const bodies = entries.map((entry) => wordsOf(`${entry.why} ${entry.fix} ${entry.texts}`));
  const among = (sets, word) => sets.filter((set) => set.has(word)).length;
  const weights = new Map();
  for (const word of wordsOf(text)) {
    const frequency = among(titles, word) || among(bodies, word) || 5;
    weights.set(word, Math.max(0, Math.log(entries.length / frequency / 3)));
  }
  const scores = entries.map((_, i) => {
    let score = 0;
    for (const [word, weight] of weights) score += weight * (titles[i].has(word) ? 1 : bodies[i].has(word) ? 0.6 : 0);
    return score;
  });
  const total = [...weights.values()].reduce((sum, weight) => sum + weight, 0);
  const least = Math.max(0.4 * total, Math.max(...scores) / 2);
  const good = entries.map((entry, i) => [entry, scores[i]]).filter(([, score]) => least > 0 && score >= least);
  good.sort(([, one], [, other]) => other - one);
  return { found: good.slice(0, 3).map(([entry]) => entry), doubt: good.length ? doubts[1] : "" };
}

function explain(text) {
  const matches = byRules(text);
  return matches.found.length || has(error, text) ? matches : byWords(text);
}
globalThis.packvizExplain = (text) => explain(text).found.map(({ name }) => name);

const [field, summary, cards] = ["textarea", "[role=status]", ".pv-table"].map((part) => document.querySelector(`.pv-museum ${part}`));
function search() {
  const { found, doubt } = explain(field.value);
  const others = found.length > 1 ? ` (or ${found.length - 1} other${found.length > 2 ? "s" : ""})` : "";
  const best = found.length && `${found[0].place}, “${found[0].name}”${others}.`;
  summary.textContent = !found.length ? "Nothing matches." : doubt ? `Not sure; perhaps ${best} ${doubt}` : `Sure: ${best}`;
  cards.innerHTML = found.map(({ card }) => card).join("");
}
field.addEventListener("input", search);

// Entries fold. A link to an entry opens it.
for (const heading of document.querySelectorAll("article > h3")) {
  if (!/^\d/.test(heading.textContent)) continue;
  const fold = Object.assign(document.createElement("details"), { className: "pv-entry" });
  const line = document.createElement("summary");
  heading.before(fold);
  line.append(heading);
  fold.append(line);
  while (fold.nextSibling && !/^H\d$/.test(fold.nextSibling.nodeName)) fold.append(fold.nextSibling);
}
function reveal() {
  const fold = document.getElementById(decodeURIComponent(location.hash.slice(1)))?.closest(".pv-entry");
  if (!fold) return;
  fold.open = true;
  fold.scrollIntoView();
}
addEventListener("hashchange", reveal);
reveal();
