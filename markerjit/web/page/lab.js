// The page of `lab`: a question, a prediction, a run, and its outcome. The prediction stays in this browser.
"use strict";

const predictions = {};
const sources = {};
let state = null;
let chosen = "";
let seen = null;

function experiment() {
  return state.experiments.find((each) => each.letter === chosen);
}

function show(document_) {
  state = document_;
  if (!chosen) chosen = state.experiments[0].letter;
  showList();
  showQuestion(experiment());
  showProgress();
  renew(byId("outcome"), [experiment(), predictions[chosen], state.failures[chosen]], () => outcomeOf(experiment()));
  announce();
}

// Announce the outcome of a run that has ended.
function announce() {
  const { number, letter } = state.last;
  if (seen !== null && number !== seen) {
    const each = state.experiments.find((other) => other.letter === letter);
    const failure = state.failures[letter];
    say(failure || `experiment ${letter}: what came true: ${cameTrue(each)}`, Boolean(failure));
  }
  seen = number;
}

// The choice that came true. Some runs cannot tell which one it was.
function cameTrue(each) {
  return each.answer === null ? "this cannot be told from these runs" : each.choices[each.answer];
}

function showList() {
  const names = state.experiments.map((each) => [each.letter, each.title, Boolean(each.runs)]);
  const list = byId("experiments");
  renew(list, names.map(([letter, title]) => [letter, title]), () => names.map(([letter, title]) => {
    const button = make("button", { "data-letter": letter }, make("span", {}, `${letter}  ${title} `), make("small", { class: "faint" }));
    button.onclick = () => choose(letter);
    return make("li", {}, button);
  }));
  for (const button of list.querySelectorAll("button")) {
    const letter = button.dataset.letter;
    button.setAttribute("aria-current", String(letter === chosen));
    const done = state.experiments.find((each) => each.letter === letter).runs;
    setText(button.querySelector("small"), letter === state.running ? "runs" : done ? "✓ run" : "");
  }
}

function showQuestion(each) {
  setText(byId("title"), `(${each.letter}) ${each.title}`);
  setText(byId("question"), each.question);
  renew(byId("choices"), [each.letter, each.choices], () => each.choices.map((choice, index) => {
    const button = make("button", { "data-index": index }, `${index + 1}. ${choice}`);
    button.onclick = () => predict(index);
    return button;
  }));
  for (const button of byId("choices").children) {
    button.setAttribute("aria-pressed", String(predictions[chosen] === Number(button.dataset.index)));
  }
  byId("run").disabled = Boolean(state.running || state.ended);
  const source = byId("source");
  source.hidden = !(source.dataset.open && sources[chosen]);
  setText(source, sources[chosen] || "");
  byId("source-button").setAttribute("aria-expanded", String(!source.hidden));
}

function showProgress() {
  if (state.running && byId("running").hidden) say(`experiment ${state.running} runs`, false);
  byId("running").hidden = !state.running;
  const progress = state.progress || { name: "it starts", percent: 0 };
  byId("progress").value = progress.percent;
  setText(byId("progress-text"), state.running ? `(${state.running}) ${progress.name}: ${progress.percent} %` : "");
}

function outcomeOf(each) {
  if (state.failures[chosen]) return [make("p", { class: "bad" }, state.failures[chosen])];
  if (!each.runs) return [];
  const prediction = predictions[chosen];
  const number = each.answer === null ? "" : `${each.answer + 1}. `;
  const verdict = prediction === undefined || each.answer === null ? "" : prediction === each.answer ? " You predicted it." : " You predicted otherwise.";
  return [
    make("p", { class: "answer" }, `What came true: ${number}${cameTrue(each)}.${verdict}`),
    ...each.runs.map((run) => runOf(run, each)),
    make("h3", {}, "Why"),
    ...each.explanation.map((paragraph) => make("p", {}, paragraph)),
    make("h3", {}, "Read on"),
    make("ul", {}, ...each.references.map((reference) => make("li", {}, reference))),
  ];
}

function runOf(run, each) {
  const counts = Object.entries(run.counts).flatMap(([what, count]) =>
    [make("dt", {}, count.toLocaleString("en")), make("dd", {}, what)]);
  const parts = [
    make("h3", {}, make("span", { class: run.is_safe ? "on" : "bad" }, run.is_safe ? "safe" : "dangerous"), ` ${run.name}`),
    ...(run.lacks ? [make("p", {}, `left out: ${run.lacks}`)] : []),
    ...run.pictures.map(pictureOf),
    ...(run.chart ? [chartOf(run.chart)] : []),
    make("dl", {}, ...counts),
    make("p", {}, run.story),
  ];
  if (!run.is_safe && run.went_well) {
    parts.push(make("p", {}, `The fault did not show up in ${run.tries.toLocaleString("en")} tries. ${each.forgiven}`));
  }
  return make("article", { class: run.is_safe ? "run safe" : "run" }, ...parts);
}

// Bytes at one moment. Bytes that differ from the previous picture are framed.
function pictureOf(picture, index, pictures) {
  const bytes = (code) => code.match(/../g) || [];
  const before = index && pictures[index - 1].address === picture.address ? bytes(pictures[index - 1].code) : null;
  const data = bytes(picture.code).map((byte, at) => ({ value: parseInt(byte, 16), lit: before !== null && before[at] !== byte }));
  return make("figure", { class: "picture" }, make("figcaption", {}, picture.caption),
    make("ol", { class: "code" }, instruction(picture.address, data, picture.assembly.join("; "))));
}

// Measured differences as bars on one scale, with the same figures as text beside them.
function chartOf(chart) {
  const least = Math.min(0, ...chart.bars.map((bar) => bar.low));
  const span = Math.max(0, ...chart.bars.map((bar) => bar.high)) - least || 1;
  const signed = (value) => (value < 0 ? "" : "+") + value.toFixed(2);
  const at = (value) => 1 + 98 * (value - least) / span;
  const box = (kind, from, to, y, height) => draw("rect", { class: kind, x: Math.min(at(from), at(to)), width: Math.abs(at(to) - at(from)), y, height });
  const rows = chart.bars.map((bar) => make("tr", {},
    make("th", { scope: "row" }, bar.name),
    make("td", {}, draw("svg", { viewBox: "0 0 100 10", preserveAspectRatio: "none", "aria-hidden": "true" },
      box("bar", 0, bar.value, 2, 6), box("interval", bar.low, bar.high, 4, 2),
      draw("rect", { class: "zero", x: at(0) - 0.2, width: 0.4, y: 0, height: 10 }))),
    make("td", { class: "mono" }, `${signed(bar.value)} [${signed(bar.low)}, ${signed(bar.high)}]`)));
  return make("figure", { class: "chart" }, make("figcaption", {}, `${chart.caption}. A bar ends at the estimate, and the thin line on it is the interval.`), make("table", {}, make("tbody", {}, ...rows)));
}

// ---- what the user asks for ---------------------------------------------------------------------

function choose(letter) {
  chosen = letter;
  delete byId("source").dataset.open;
  show(state);
}

function predict(index) {
  predictions[chosen] = index;
  show(state);
}

async function run() {
  if (state.running || state.ended) return;
  await act({ do: "run", letter: chosen });
}

async function toggleSource() {
  const source = byId("source");
  const letter = chosen;
  if (source.dataset.open) {
    delete source.dataset.open;
  } else {
    sources[letter] = sources[letter] || (await act({ do: "source", letter })).source;
    source.dataset.open = "true";
  }
  show(state);
}

byId("run").onclick = run;
byId("source-button").onclick = toggleSource;

document.onkeydown = (event) => {
  if (!byId("keys").checked || !state || event.ctrlKey || event.altKey || event.metaKey) return;
  const letters = state.experiments.map((each) => each.letter);
  const beside = { ArrowDown: 1, ArrowUp: -1 }[event.key];
  const index = Number(event.key) - 1;
  if (event.target.id === "source") return;
  if (event.key === "r") run();
  else if (event.key === "s") toggleSource();
  else if (index >= 0 && index < experiment().choices.length) predict(index);
  else if (beside) {
    const letter = letters[letters.indexOf(chosen) + beside];
    if (!letter) return;
    choose(letter);
    document.querySelector(`[data-letter="${letter}"]`).focus();
  } else return;
  event.preventDefault();
};

connect(show);
