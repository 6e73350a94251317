"use strict";
// Asks this machine for figures once a second and draws them.

const EVERY = 1000;
const IDLE = 120; // seconds without a record after which a run is idle
const COUNTS = {
  agents: { events: "events", releases: "releases", estimates: "estimates", refusals: "refused", drifts: "means that changed", input_lag: "not read yet", pending: "wait for event time" },
  collaborate: { events: "records", releases: "releases received", agents: "agents that have released", estimates: "estimates" },
  rounds: { releases: "reports", estimates: "windows answered", waiting: "waiting", over_budget: "over budget" },
};
let shown = null;
let figures = null;
let chosen = null; // start of the window whose stages are shown; null for the newest
let agent = null;
let axis = "event_time";

function utc(seconds) {
  return moment(seconds) === null ? "-" : moment(seconds).slice(0, 16).replace("T", " ");
}

function behind(seconds) {
  return moment(seconds) === null ? "-" : span(Date.now() / 1000 - seconds);
}

// The first questions: how much better, what comes next, how long it lasts, how fresh it is.
function headlines(found) {
  if (found.kind === "rounds") {
    const last = found.windows[found.windows.length - 1];
    const scalar = last && !Array.isArray(last.value);
    const top = last && last.categories ? last.value.indexOf(Math.max(...last.value)) : -1;
    return [
      ["users", number(found.counts.agents)],
      top >= 0 ? ["largest share", `${last.categories[top]}: ${(100 * last.value[top]).toFixed(1)} %`]
        : ["newest mean", scalar ? `${number(last.value)} ± ${number((last.upper - last.lower) / 2, 2)}` : "-"],
      ["windows a user's budget pays for", !found.budget ? "-" : found.budget.horizon === null ? "no limit" : number(found.budget.horizon)],
      ["newest window's end (UTC)", last ? utc(Date.parse(last.end) / 1000) : "-"],
      ["answers behind the clock", last ? behind(Date.parse(last.end) / 1000) : "-"],
      ...(last && last.carried ? [
        ["windows that are carried on", number(last.carried.windows)],
        ["standard error if nothing were carried", last.carried.gain === null ? "-" : `${last.carried.gain.toFixed(2)} times`],
      ] : []),
    ];
  }
  const gain = found.convergence.gain;
  const shorter = gain === null ? 0 : Math.round(100 * (1 - 1 / gain));
  const better = ["error bars (median)", gain === null ? "-" : shorter === 0 ? "as long as alone"
    : `${Math.abs(shorter)} % ${shorter > 0 ? "shorter" : "longer"} than alone`];
  const { classes, class_agents: inOne } = found.convergence;
  const grouped = ["classes of agents", classes === null ? "-" : `${number(classes, 3)}, ${number(inOne, 3)} agents (median)`];
  const fresh = [["event time (UTC)", utc(found.counts.event_time)], ["answers behind the clock", behind(found.answered_until)], ["since the last record", behind(found.last_record)]];
  if (found.kind === "collaborate") return [["own agents", number(found.counts.own_agents)], better, grouped, ...fresh];
  const next = found.next_release;
  const due = !next ? "-" : next.event_time === null ? next.why : utc(next.event_time);
  return [
    ["agents", number(found.counts.agents)],
    better,
    grouped,
    ["next release (event time, UTC)", due],
    ["first budget ends in", found.forecast ? found.forecast.first_in : "-"],
    ...fresh,
  ];
}

function tiles(found) {
  const counts = Object.entries(COUNTS[found.kind]).map(([key, label]) => [label, number(found.counts[key])]);
  byId("tiles").replaceChildren(...[headlines(found), counts].map((entries, i) => {
    const row = Object.assign(document.createElement("div"), { className: i ? "counts" : "headlines" });
    row.append(...entries.map(tile));
    return row;
  }));
}

function tile([label, text]) {
  const found = Object.assign(document.createElement("div"), { className: "tile" });
  const size = text.length > 12 ? "longer" : text.length > 9 ? "long" : "";
  const value = Object.assign(document.createElement("b"), { textContent: text, className: size });
  value.dataset.name = label;
  found.append(value, Object.assign(document.createElement("span"), { className: "quiet", textContent: label }));
  return found;
}

// Which run this is, in a line.
function about(found) {
  const run = found.about;
  byId("run").textContent = run.name ?? "";
  document.title = run.name ? `${run.name} - Meanstream` : "Meanstream";
  const delta = run.delta ? `, delta ${run.delta < 1e-3 ? run.delta.toExponential() : run.delta}` : "";
  byId("about").textContent = !run.source ? "" : [
    `from ${run.source}`, `epsilon ${run.epsilon}${delta} of ${run.unit}`, run.user_budget ? `at most epsilon ${run.user_budget} of a user` : null,
    run.estimator, run.lateness ? `lateness ${run.lateness} (${run.why})` : null,
    run.refresh ? `estimates every ${run.refresh}` : null, `version ${run.version}`,
  ].filter(Boolean).join(" · ");
}

// What the run does now: also that nothing has come for a while.
function running(found) {
  if (!found.running) return state("finished", false);
  if (found.problem) return state("not ready", false);
  const idle = Date.now() / 1000 - (found.last_record ?? Date.now() / 1000);
  return idle < IDLE ? state("running", true) : state(`idle ${shortSpan(idle)}`, false);
}

function state(text, running) {
  byId("state").textContent = text;
  byId("state").classList.toggle("running", running);
}

function choose(index) {
  chosen = figures.windows[index].start;
  render();
}

function render() {
  const found = figures;
  running(found);
  byId("judgement").textContent = found.judgement ?? "";
  byId("problem").textContent = found.problem ?? "";
  byId("kind").textContent = found.kind === "rounds"
    ? "one private mean per window; everything here is public"
    : "one private mean per agent; this page is private";
  for (const kind of ["agents", "rounds"]) {
    document.querySelectorAll(`.${kind}`).forEach((card) => { card.hidden = (kind === "rounds") !== (found.kind === "rounds"); });
  }
  byId("budget-card").hidden = found.kind === "collaborate"; // nothing is spent here
  document.body.className = `of-${found.kind}`;
  document.querySelector("main").hidden = false; // before, no one knew which charts a run has
  about(found);
  tiles(found);
  if (found.kind === "rounds") {
    const at = found.windows.findIndex((row) => row.start === chosen);
    const index = at < 0 ? found.windows.length - 1 : at;
    drawWindows(found.windows, index, choose);
    drawStages(found.windows[index], found.bounds);
  } else {
    drawConvergence(found.convergence, found.first_release, axis);
    byId("population-card").hidden = Boolean(found.pairs); // agents that query each other have none
    if (!found.pairs) drawPopulation(found.population);
    byId("agent-card").hidden = !found.searchable;
    drawFlow(found.flow, found.running);
    drawRejects(found.rejects);
  }
  byId("protected").textContent = found.protected;
  drawForecast(found.forecast);
  drawBudget(found.budget, found.pairs ? "pairs" : found.kind);
}

async function search(name) {
  const answer = await fetch(`agent?name=${encodeURIComponent(name)}`);
  if (!answer.ok) return null;
  const found = await answer.json();
  byId("names").replaceChildren(...found.like.map((like) => Object.assign(document.createElement("option"), { value: like })));
  return found;
}

async function look() {
  try {
    const answer = await fetch("data");
    if (!answer.ok) {
      state(answer.status === 401 || answer.status === 403 ? "the token is not that of this run" : "no answer", false);
      return;
    }
    figures = await answer.json();
    const version = JSON.stringify([figures.version, figures.problem, figures.forecast, figures.about]);
    if (version !== shown) {
      shown = version;
      render();
      if (figures.searchable) drawAgent(agent ? await search(agent) : null);
    } else {
      tiles(figures); // the clock goes on
      running(figures);
    }
  } catch {
    state("the engine has ended", false);
  }
}

async function forever() {
  await look();
  setTimeout(forever, document.hidden ? 5 * EVERY : EVERY);
}

byId("search").addEventListener("submit", async (event) => {
  event.preventDefault();
  agent = byId("name").value.trim() || null;
  drawAgent(agent ? await search(agent) : null);
});
byId("name").addEventListener("input", () => search(byId("name").value.trim()));
byId("axis").addEventListener("change", (event) => {
  axis = event.target.value;
  if (figures) render();
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => figures && render());
forever();
