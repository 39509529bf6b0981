// The page of `watch`: shows each new state, and sends the commands of its user.
"use strict";

const KEYS = { o: "on", f: "off", n: "step", u: "undo", e: "events", k: "keep" };
const LOOK_S = 0.5;
let state = null;
let said = 0;
let dragging = false;

function figure(value) {
  if (value === null) return "-";
  for (const [size, unit] of [[1e9, "G"], [1e6, "M"], [1e3, "k"]]) {
    if (value >= size * 0.9995) return (value / size).toFixed(value / size >= 99.95 ? 0 : 1) + unit;
  }
  return value.toFixed(0);
}

function show(document_) {
  state = document_;
  const { rows, detail } = state;
  document.title = `markerjit watch ${state.pid}`;
  setText(byId("process"), `pid ${state.pid} ${state.command}`);
  setText(byId("counts"), `${rows.filter((row) => row.is_on).length} of ${rows.length} on`);
  setText(byId("runtime"), state.runtime);
  setText(byId("trouble"), state.trouble);
  showRows(rows, detail);
  if (detail) showDetail(detail);
  if (state.message.number !== said) {
    said = state.message.number;
    say(state.message.sentence, state.message.refused);
  }
}

// ---- markers ------------------------------------------------------------------------------------

const lines = new Map();

function showRows(rows, detail) {
  const names = new Set(rows.map((row) => row.name));
  for (const [name, line] of lines) if (!names.has(name)) { line.element.remove(); lines.delete(name); }
  for (const row of rows) {
    if (!lines.has(row.name)) lines.set(row.name, newLine(row.name));
    const line = lines.get(row.name);
    line.button.setAttribute("aria-pressed", String(detail !== null && detail.row.name === row.name));
    setText(line.state, row.shown.text);
    line.state.className = row.shown.role;
    setText(line.rate, figure(row.rate));
    setText(line.lost, row.lost ? figure(row.lost) : "-");
    line.lost.className = row.lost ? "number bad" : "number";
    const highest = Math.max(...row.rates, 1);
    const points = row.rates.map((rate, at) => `${at + 60 - row.rates.length},${20 - 19 * rate / highest}`);
    line.curve.setAttribute("points", points.join(" "));
  }
}

function newLine(name) {
  const button = make("button", { "aria-pressed": "false" }, name);
  button.onclick = () => act({ do: "choose", name });
  const curve = draw("polyline", { points: "" });
  const spark = draw("svg", { class: "spark", viewBox: "0 0 59 21", preserveAspectRatio: "none", "aria-hidden": "true" }, curve);
  const cells = { state: make("td"), rate: make("td", { class: "number" }), lost: make("td", { class: "number" }) };
  const element = make("tr", {}, make("td", {}, button), cells.state, cells.rate, make("td", { class: "wide" }, spark), cells.lost);
  byId("rows").append(element);
  return { element, button, curve, ...cells };
}

// ---- one marker ---------------------------------------------------------------------------------

function showDetail(detail) {
  const { row } = detail;
  setText(byId("name"), row.name);
  setText(byId("format"), `"${detail.format}"`);
  const more = detail.more_sites ? ` and ${detail.more_sites} more` : "";
  setText(byId("source"), `${detail.source}${more}, compiled as ${detail.kind}`);
  setText(byId("state"), row.shown.text);
  byId("state").className = row.shown.role;
  setText(byId("who"), detail.who);
  setText(byId("hits"), `hits ${row.hits.toLocaleString("en")}, lost ${row.lost.toLocaleString("en")};`);
  setText(byId("journal"), detail.journal);
  showChoice("mode", state.modes, state.mode);
  showChoice("strategy", state.strategies, state.strategy);
  showStages(detail.stages);
  renew(byId("code"), detail.places, (places) => places.flatMap(placeOf));
  renew(byId("slot"), detail.places.flatMap((place) => place.slot), (words) => words.map(slotOf));
  showRate(row);
  showCost(state.cost, row);
  renew(byId("probes"), state.probes, (probes) => probes.flatMap(probeOf));
  showThreads(state.threads);
  setText(byId("events-title"), detail.events ? "the last ones, the newest first" : "the button Events records them");
  renew(byId("events"), detail.events || [], (events) => events.slice().reverse().map((event) => make("li", {}, event)));
}

function showChoice(id, values, chosen) {
  const select = byId(id);
  renew(select, values, () => values.map((value) => make("option", { value }, value)));
  if (document.activeElement !== select || select.dataset.seen !== chosen) select.value = chosen;
  select.dataset.seen = chosen;
}

function showStages(stages) {
  byId("timeline").hidden = !stages.length;
  if (!stages.length) return;
  const last = stages.length - 1;
  const count = stages.filter((stage) => stage.is_made).length - 1;
  setText(byId("stages-made"), `${count} of ${last} made`);
  const slider = byId("stage");
  slider.max = last;
  if (!dragging) slider.value = count;
  slider.setAttribute("aria-valuetext", `${slider.value} of ${last} stages made`);
  renew(byId("stages"), stages, () => stages.map((stage) => stageOf(stage, count)));
}

function stageOf(stage, count) {
  const isNext = stage.number === count + 1;
  const name = stage.number ? `Stage ${stage.number}` : "Before the first stage";
  const mark = stage.is_made ? "✓ made" : isNext ? "▶ next" : "";
  const steps = stage.steps.map((step) => make("li", { class: step.writes ? "writes" : "" }, step.sentence));
  return make("li", { class: stage.is_made ? "made" : isNext ? "next" : "ahead" },
    make("strong", {}, name), ` ${mark}`, make("ul", {}, ...steps));
}

function placeOf(place) {
  const code = place.code.map((piece) => instruction(piece.address, piece.data, piece.text));
  return [make("p", { class: "faint" }, place.source), make("ol", { class: "code" }, ...code)];
}

function slotOf(word) {
  const value = word.data.reduceRight((sum, byte) => sum * 256n + BigInt(byte.value), 0n);
  const text = value ? `0x${value.toString(16)}` : "0, nothing";
  const lit = word.data.some((byte) => byte.lit);
  return make("li", { class: "mono" }, `${word.text} `, make(lit ? "mark" : "span", { class: "byte" }, text));
}

// ---- charts -------------------------------------------------------------------------------------

// A picture with the texts of its two ends below it.
function chart(label, ends, ...parts) {
  const picture = draw("svg", { class: "chart", viewBox: "0 0 600 100", preserveAspectRatio: "none", role: "img", "aria-label": label }, ...parts);
  return [picture, make("p", { class: "ends" }, ...ends.map((end) => make("span", {}, end)))];
}

function showRate(row) {
  const highest = Math.max(...row.rates, 0);
  setText(byId("rate"), `now ${figure(row.rate)}, at most ${figure(highest)}`);
  renew(byId("chart"), row.rates, (rates) => {
    const points = rates.map((rate, at) => `${(at + 60 - rates.length) * 600 / 59},${100 - (highest ? 95 * rate / highest : 0)}`);
    const from = (60 - rates.length) * 600 / 59;
    return chart(`hits per second in the last half minute: now ${figure(row.rate)}, at most ${figure(highest)}`,
      [`${60 * LOOK_S} s ago`, "now"],
      draw("polygon", { points: `${from},100 ${points.join(" ")} 600,100` }),
      draw("polyline", { points: points.join(" ") }));
  });
}

function bars(label, counts, ends) {
  const most = Math.max(...counts);
  const width = 600 / counts.length;
  return chart(label, ends, ...counts.map((count, at) => {
    const height = 95 * count / most;
    return draw("rect", { x: at * width + 1, y: 100 - height, width: Math.max(width - 2, 1), height });
  }));
}

function showCost(cost, row) {
  const hint = row.is_on ? "not measured for this state" : "it is off";
  setText(byId("cost-title"), cost ? `${cost.form}, by the bench: median ${cost.median.toFixed(1)} ns` : `${hint}; --bench FILE shows what the bench has measured`);
  renew(byId("cost"), cost, () => {
    if (!cost) return [];
    const ends = [cost.low, cost.low + cost.width * cost.counts.length].map((end) => `${end.toFixed(1)} ns`);
    return bars(`samples of the cost of a hit, from ${ends[0]} to ${ends[1]}, median ${cost.median.toFixed(1)} ns`, cost.counts, ends);
  });
}

function probeOf(probe) {
  const counters = Object.entries(probe.counters).map(([name, value]) =>
    make("p", {}, `${name}: ${value.toLocaleString("en")}`));
  const histograms = Object.entries(probe.histograms).filter(([, buckets]) => buckets.length).map(([name, buckets]) => {
    const ends = [`${buckets[0].low}`, `${buckets.at(-1).high}`];
    return make("div", {}, make("p", {}, `${name}, by bucket`),
      ...bars(`${name}: values from ${ends[0]} to ${ends[1]}`, buckets.map((bucket) => bucket.number), ends));
  });
  return [make("h3", {}, "Probe in C ", make("small", {}, probe.source)), ...counters, ...histograms];
}

function showThreads(threads) {
  setText(byId("threads-title"), threads.length ? "where each was at this look" : "not known");
  renew(byId("threads"), threads, () => threads.map((thread) => make("li", {},
    make("span", { class: "mono" }, `${thread.tid} ${thread.name} `), thread.where)));
}

// ---- what the user asks for ---------------------------------------------------------------------

function command(action) {
  if (state && state.detail && !state.ended) act({ do: action, name: state.detail.row.name });
}

function next(values, value) {
  return values[(values.indexOf(value) + 1) % values.length];
}

function chooseBeside(distance) {
  const names = state.rows.map((row) => row.name);
  const at = names.indexOf(state.detail ? state.detail.row.name : "") + distance;
  if (at < 0 || at >= names.length) return;
  act({ do: "choose", name: names[at] });
  lines.get(names[at]).button.focus();
}

for (const button of document.querySelectorAll("[data-do]")) button.onclick = () => command(button.dataset.do);
for (const id of ["mode", "strategy"]) byId(id).onchange = () => act({ do: id, value: byId(id).value });

const slider = byId("stage");
slider.oninput = () => {
  dragging = true;
  slider.setAttribute("aria-valuetext", `${slider.value} of ${slider.max} stages`);
};
// A slider that was dragged back to where it was has no `change`.
slider.onpointerup = () => {
  dragging = false;
};
slider.onchange = async () => {
  dragging = true;
  await act({ do: "stage", number: Number(slider.value) });
  dragging = false;
};

document.onkeydown = (event) => {
  if (!byId("keys").checked || !state || state.ended || event.ctrlKey || event.altKey || event.metaKey) return;
  const isInput = event.target.matches("select, input");
  if (event.key in KEYS && !event.target.matches("select")) command(KEYS[event.key]);
  else if (event.key === "m" && !isInput) act({ do: "mode", value: next(state.modes, state.mode) });
  else if (event.key === "s" && !isInput) act({ do: "strategy", value: next(state.strategies, state.strategy) });
  else if (event.key === "ArrowDown" && !isInput) chooseBeside(1);
  else if (event.key === "ArrowUp" && !isInput) chooseBeside(-1);
  else return;
  event.preventDefault();
};

connect(show);
