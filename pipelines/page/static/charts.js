"use strict";
// Draws figures as plain data; the server has made them (pipelines/page/page_figures.py).

const CONFIG = { displayModeBar: false, responsive: true, doubleClick: "reset" };

function color(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}

function faint(name) {
  const [r, g, b] = [1, 3, 5].map((i) => parseInt(color(name).slice(i, i + 2), 16));
  return `rgba(${r},${g},${b},0.18)`;
}

function byId(id) {
  return document.getElementById(id);
}

function number(value, digits = 3) {
  if (value === null || value === undefined) return "-";
  if (Number.isInteger(value)) return value.toLocaleString("en-US");
  return Math.abs(value) >= 1000 ? Math.round(value).toLocaleString("en-US") : String(Number(value.toPrecision(digits)));
}

// A name as Plotly draws it: not as a link or another tag, which Plotly reads in texts.
function plain(name) {
  return String(name).replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");
}

// Seconds as a time that Plotly draws in UTC; null where it is none that a date can be.
function moment(seconds) {
  return seconds === null || seconds === undefined || Math.abs(seconds) > 1e11 ? null : new Date(seconds * 1000).toISOString().slice(0, 23);
}

// A length of time as people say it.
function span(seconds) {
  const units = [[31557600, "year"], [86400, "day"], [3600, "hour"], [60, "minute"], [1, "second"]];
  const [size, name] = units.find(([length]) => seconds >= 2 * length) ?? units[4];
  const count = Math.max(Math.round(seconds / size), 0);
  return `${count.toLocaleString("en-US")} ${name}${count === 1 ? "" : "s"}`;
}

// The same in a few letters: 7 min.
function shortSpan(seconds) {
  const units = [[86400, "d"], [3600, "h"], [60, "min"]];
  const [size, name] = units.find(([length]) => seconds >= length) ?? units[2];
  return `${Math.floor(seconds / size)} ${name}`;
}

// Whether two lines lie on each other, as far as a chart shows.
function coincide(one, other) {
  return one.length > 0 && one.every((y, i) => Math.abs(y - other[i]) <= 0.01 * Math.max(Math.abs(y), Math.abs(other[i])));
}

// A scale that always has numbers: logarithmic only where there are several of its ticks.
function scaleFor(values) {
  const known = values.filter((value) => value > 0);
  if (!known.length || Math.max(...known) < 4 * Math.min(...known)) return { rangemode: "tozero" };
  const ticks = [];
  for (let power = -9; power < 10; power += 1) ticks.push(...[1, 2, 5].map((digit) => Number(`${digit}e${power}`)));
  return { type: "log", tickmode: "array", tickvals: ticks, ticktext: ticks.map((tick) => number(tick)) };
}

function layout(x, y, more = {}) {
  const axis = {
    gridcolor: color("line"), zerolinecolor: color("line"), linecolor: color("line"), automargin: true,
    title: { standoff: 8 }, separatethousands: true,
  };
  return {
    paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
    font: { color: color("ink"), size: 12, family: getComputedStyle(document.body).fontFamily },
    margin: { l: 52, r: 14, t: 8, b: 40 }, hovermode: "closest",
    hoverlabel: { bgcolor: color("card"), bordercolor: color("line"), font: { color: color("ink") } },
    legend: { orientation: "h", x: 0, y: 1.02, yanchor: "bottom", bgcolor: "rgba(0,0,0,0)" },
    showlegend: false, bargap: 0.25, ...more,
    xaxis: { ...axis, ...(x.type === "date" ? { tickangle: 0 } : {}), ...x, title: { ...axis.title, text: x.title } },
    yaxis: { ...axis, ...y, title: { ...axis.title, text: y.title } },
    ...(more.yaxis2 ? { yaxis2: { ...axis, ...more.yaxis2 } } : {}),
  };
}

function draw(id, traces, plan) {
  const place = byId(id);
  if (place.classList.contains("empty")) {
    place.classList.remove("empty");
    place.textContent = "";
  }
  if (plan.xaxis.type === "date") plan.xaxis.nticks = Math.max(2, Math.min(8, Math.floor(place.clientWidth / 90)));
  Plotly.react(place, traces, plan, CONFIG);
}

function empty(id, why) {
  const place = byId(id);
  if (place.classList.contains("empty")) {
    if (place.textContent !== why) place.textContent = why;
    return;
  }
  Plotly.purge(place);
  place.classList.add("empty");
  place.textContent = why;
}

function band(x, low, high, name) {
  const line = { width: 0, color: color(name) };
  return [
    { x, y: low, mode: "lines", line, hoverinfo: "skip", showlegend: false },
    { x, y: high, mode: "lines", line, fill: "tonexty", fillcolor: faint(name), hoverinfo: "skip", showlegend: false },
  ];
}

function curve(x, y, name, shade, more = {}) {
  return {
    x, y, name, type: "scatter", mode: x.length > 60 ? "lines" : "lines+markers",
    line: { color: color(shade), width: 2, ...more }, marker: { size: 5, color: color(shade) },
  };
}

function drawConvergence(found, due, axis) {
  const all = found[axis].map(moment);
  const kept = all.map((_, i) => i).filter((i) => all[i] !== null);
  const pick = (column) => kept.map((i) => column[i]);
  if (!kept.length) {
    empty("convergence", due ? `No estimates yet: ${due}. Then the intervals of all agents are drawn here.`
      : "No estimates yet. With the first ones the intervals of all agents are drawn here.");
    return;
  }
  const bands = ({ low, median, high }) => ({ low: pick(low), median: pick(median), high: pick(high) });
  const [x, together, alone] = [pick(all), bands(found.together), bands(found.alone)];
  const traces = [
    ...band(x, alone.low, alone.high, "gray"), ...band(x, together.low, together.high, "blue"),
    ...(coincide(alone.median, together.median)
      ? [curve(x, together.median, "together and alone: one line for both", "blue")]
      : [curve(x, alone.median, "alone", "gray"), curve(x, together.median, "together", "blue")]),
  ];
  if (found.error) {
    traces.push(curve(x, pick(found.error_alone), "true error alone", "gray", { dash: "dot" }));
    traces.push(curve(x, pick(found.error), "true error together", "orange", { dash: "dot" }));
  }
  const drawn = traces.flatMap((trace) => trace.y);
  const changes = found.drifts ?? { number: [] };
  const moved = changes.number.map((_, i) => i).filter((i) => moment(changes[axis][i]) !== null);
  if (moved.length) { // a mark for each turn in which releases showed changes
    const text = moved.map((i) => `${number(changes.number[i])} means changed, as releases show`);
    const at = moved.map((i) => moment(changes[axis][i]));
    const low = drawn.filter((y) => y > 0);
    traces.push({ x: at, y: at.map(() => (low.length ? Math.min(...low) : 0)), text, hoverinfo: "x+text", type: "scatter",
      mode: "markers", name: "means changed", marker: { symbol: "triangle-up", size: 11, color: color("orange") } });
  }
  draw("convergence", traces, layout(
    { title: axis === "clock" ? "clock (UTC)" : "event time (UTC)", type: "date" },
    { title: "half-width, value's unit", ...scaleFor(drawn) },
    { showlegend: true, margin: { l: 60, r: 14, t: 8, b: 40 } },
  ));
}

function drawCounts(found) {
  const place = byId("counts");
  const probable = found && found.probability >= 0.5;
  place.hidden = !(probable && found.n.length);
  byId("counts-text").textContent = !found ? ""
    : `Means depend on the number of samples: ${Math.round(100 * found.probability)} % probable.` +
      (probable ? " Each agent is compared with agents that have about as many." : "");
  if (place.hidden) return;
  const low = found.center.map((center, i) => center - found.spread[i]);
  const high = found.center.map((center, i) => center + found.spread[i]);
  draw("counts", [...band(found.n, low, high, "blue"), curve(found.n, found.center, "center, and spread of means", "blue")],
    layout({ title: "samples of an agent", type: "log", dtick: 1 }, { title: "mean, value's unit" }, { showlegend: true }));
}

function drawCovariates(found) {
  const table = byId("covariates");
  table.hidden = !found;
  byId("covariates-text").textContent = found
    ? `Declared public covariates explain ${Math.round(100 * found.explained)} % of the spread of the means.` : "";
  const cell = (text) => Object.assign(document.createElement("td"), { textContent: text });
  table.tBodies[0].replaceChildren(...(found ? found.attributes : []).map((one) => {
    const row = document.createElement("tr");
    const size = `${number(one.size)} ± ${number(one.standard_error, 2)}`;
    const effect = one.shown ? `${Math.round(100 * one.probability)} %` : "no effect shown"; // else the prior speaks
    row.append(...[one.name, `${Math.round(100 * one.explained)} %`, size, effect].map(cell));
    return row;
  }));
}

function drawPopulation(found) {
  drawCounts(found && found.goes_with_count);
  drawCovariates(found && found.covariates);
  const table = byId("components");
  table.hidden = !(found && found.components.length);
  if (!found) {
    byId("population-text").textContent = "";
    empty("population", "Nothing learned yet. With the first estimates the groups of agents are drawn here.");
    return;
  }
  const groups = found.components.length === 1 ? "one group" : `${found.components.length} groups`;
  byId("population-text").textContent = found.components.length
    ? `Releases of ${number(found.agents)} agents look like ${groups}; means within a group differ by ` +
      `${number(found.spread)} (standard deviation).`
    : `${number(found.agents)} agents; the method '${found.method}' learns no prior.`;
  if (found.dependent) {
    byId("population-text").textContent += " An agent's samples depend on each other. The variance that counts " +
      `in the long run is ${number(found.dependent.ratio, 2)} times the variance of neighboring samples; intervals allow for it.`;
  }
  const cell = (text) => Object.assign(document.createElement("td"), { textContent: text });
  const rows = found.components.map((c) => {
    const row = document.createElement("tr");
    row.append(...[number(c.center), number(c.center_stddev, 2), `${Math.round(100 * c.weight)} %`, number(c.agents)].map(cell));
    return row;
  });
  table.tBodies[0].replaceChildren(...rows);
  if (!found.density) {
    empty("population", "No density to show.");
    return;
  }
  const top = Math.max(...found.density.density);
  const centers = found.components.map((c) => c.center);
  draw("population", [
    { x: found.density.value, y: found.density.density, name: "prior", mode: "lines", fill: "tozeroy",
      line: { color: color("blue"), width: 2 }, fillcolor: faint("blue") },
    { x: centers, y: centers.map(() => top * 1.07), name: "centers", mode: "markers",
      error_x: { type: "data", array: found.components.map((c) => c.center_stddev), color: color("orange"), thickness: 1.5 },
      marker: { symbol: "triangle-down", size: 11, color: color("orange") } },
  ], layout({ title: "mean of an agent, value's unit" }, { title: "prior density", rangemode: "tozero" },
    { showlegend: true }));
}

function drawShares(shares) {
  const table = byId("agent-shares");
  const cell = (text) => Object.assign(document.createElement("td"), { textContent: text });
  table.hidden = !shares;
  table.tBodies[0].replaceChildren(...Object.entries(shares ?? {}).map(([question, values]) => {
    const row = document.createElement("tr");
    row.append(cell(question), ...values.map((value) => cell(number(value))));
    return row;
  }));
}

function drawAgent(found) {
  drawShares(found && found.history.length ? found.history[found.history.length - 1].shares : null);
  if (!found) {
    byId("agent-text").textContent = "";
    empty("agent", "Type an agent's name: its own estimates are drawn here, with their intervals.");
    return;
  }
  if (!found.history.length) {
    byId("agent-text").textContent = "";
    const like = found.like.length ? ` Names like it: ${found.like.join(", ")}.` : "";
    empty("agent", `No estimates of '${found.name}'.${like}`);
    return;
  }
  const of = (key) => found.history.map((row) => row[key]);
  const last = found.history[found.history.length - 1];
  byId("agent-text").textContent = `${found.name}: ${number(last.value)} in [${number(last.lower)}, ${number(last.upper)}] ` +
    `after ${number(last.n)} samples; alone ${number(last.local)} in [${number(last.local_lower)}, ${number(last.local_upper)}].` +
    (last.coverage === "anytime" ? " All intervals hold together, however often you look." : "");
  draw("agent", [
    ...band(of("n"), of("local_lower"), of("local_upper"), "gray"), ...band(of("n"), of("lower"), of("upper"), "blue"),
    curve(of("n"), of("local"), "alone", "gray"), curve(of("n"), of("value"), "together", "blue"),
  ], layout({ title: "own samples" }, { title: "mean, value's unit" }, { showlegend: true }));
}

// An answer that was cut to the bounds, or to a ball, can lie outside of its interval.
function reach(length) {
  return Math.max(length, 0);
}

function drawWindows(rows, chosen, choose) {
  if (!rows.length) {
    empty("windows", "No window has been answered yet. Each one's mean is drawn here, with its interval.");
    return;
  }
  if (Array.isArray(rows[rows.length - 1].value)) {
    drawCoordinates(rows[chosen]);
  } else {
    const x = rows.map((row) => row.start);
    const value = rows.map((row) => row.value);
    const traces = [{
      x, y: value, name: "private mean", type: "scatter", mode: "markers",
      marker: { color: rows.map((_, i) => color(i === chosen ? "orange" : "blue")), size: rows.map((_, i) => (i === chosen ? 10 : 6)),
        opacity: 1, line: { width: 0 } },
      error_y: { type: "data", symmetric: false, color: color("blue"), thickness: 1.3, width: 0,
        array: rows.map((row) => reach(row.upper - row.value)), arrayminus: rows.map((row) => reach(row.value - row.lower)) },
    }];
    if (rows.some((row) => row.true !== null)) {
      traces.push(curve(x, rows.map((row) => row.true), "true mean (demo only)", "gray"));
    }
    draw("windows", traces, layout({ title: "start of the window (UTC)", type: "date" }, { title: "mean, value's unit" },
      { showlegend: traces.length > 1 }));
  }
  const place = byId("windows");
  place.removeAllListeners("plotly_click");
  const scalar = !Array.isArray(rows[rows.length - 1].value);
  if (scalar) place.on("plotly_click", (event) => choose(event.points[0].pointNumber));
}

function drawCoordinates(row) {
  const shares = row.categories !== undefined;
  const names = row.categories ?? row.quantiles;
  const x = names ? names.map(plain) : row.value.map((_, i) => i + 1);
  const of = shares ? "share" : names ? "quantile" : "mean";
  draw("windows", [{
    x, y: row.value, name: `private ${of}`, type: "scatter", mode: "markers", marker: { color: color("blue"), size: 6 },
    error_y: { type: "data", symmetric: false, color: color("blue"), thickness: 1.3, width: 0,
      array: row.upper.map((u, i) => reach(u - row.value[i])), arrayminus: row.lower.map((l, i) => reach(row.value[i] - l)) },
  }], layout({ title: shares ? "category" : names ? "probability" : "coordinate", ...(names ? { type: "category" } : {}) },
    { title: `${of}, window from ${row.start.slice(0, 10)}` }));
}

// What this window hands on to the next one, of an estimator that carries.
function carriedText(carried) {
  if (!carried) return "";
  const from = `learned from ${number(carried.windows)} ${carried.windows === 1 ? "window" : "windows"}`;
  const what = carried.half_width === null ? "no narrow window yet" : `a narrow window of half-width ${number(carried.half_width, 2)}`;
  const restart = carried.contradicts ? ` Earlier windows were contradicted: ${carried.contradicts}.` : "";
  return `${restart} For the next window: ${what}, ${from}.`;
}

function drawStages(row, bounds) {
  if (!row) {
    byId("stages-text").textContent = "";
    empty("stages", "No round yet. How its stages narrow the interval is drawn here.");
    return;
  }
  const shown = row.stages.filter((stage) => stage.center !== null);
  byId("stages-text").textContent = `Window from ${row.start.slice(0, 16).replace("T", " ")}, ${row.method}: ` +
    `${number(row.users)} users. The interval of each stage, as the votes or reports before it chose it.${carriedText(row.carried)}`;
  if (!shown.length) {
    empty("stages", "The stages of this round say nothing of an interval.");
    return;
  }
  const labels = shown.map((stage, i) => `${i + 1} ${plain(stage.name)}` +
    (stage.votes === null ? "" : `<br>${number(stage.votes)} votes`));
  const half = (stage) => (stage.lower === null ? 0 : (stage.upper - stage.lower) / 2);
  const middle = (stage) => (stage.lower === null ? stage.center : (stage.lower + stage.upper) / 2);
  const text = shown.map((stage) => `${number(stage.users)} users` +
    (stage.votes === null ? "" : `, ${number(stage.votes)} votes for it`));
  draw("stages", [
    { y: labels, x: shown.map((s) => 2 * half(s)), base: shown.map((s) => middle(s) - half(s)), type: "bar", orientation: "h",
      width: 0.45, name: "interval", marker: { color: faint("blue"), line: { color: color("blue"), width: 1 } },
      text, textposition: "none", hovertemplate: "%{text}<br>from %{base}<extra></extra>" },
    { y: labels, x: shown.map((s) => s.center), type: "scatter", mode: "markers", name: "center", text,
      marker: { color: color("orange"), size: 9 }, hovertemplate: "%{x}<br>%{text}<extra></extra>" },
  ], layout({ title: "value's unit", ...(bounds ? { range: bounds } : {}) }, { title: "", autorange: "reversed" },
    { showlegend: true }));
}

function drawBudget(found, kind) {
  const who = { rounds: "users", pairs: "pairs" }[kind] ?? "agents";
  const what = kind === "rounds" ? "rounds" : "releases";
  if (!found || !found.agents.some((n) => n > 0)) {
    byId("budget-text").textContent = "";
    empty("budget", `No ${who} yet. How much of their budgets they have spent is drawn here.`);
    return;
  }
  const limit = found.horizon === null ? "; there is no limit" : ` of ${number(found.horizon)} ${what}`;
  const unit = found.horizon === null ? ` ${what}` : "";
  const each = kind === "pairs" ? " Each reader of an agent has a budget of its own." : "";
  byId("budget-text").textContent = `The most that one of the ${who} has spent: ${number(found.most)}${unit}${limit}.${each}`;
  draw("budget", [{ x: found.labels, y: found.agents, type: "bar", marker: { color: color("blue") } }],
    layout({ title: found.horizon === null ? `${what} paid for` : "spent share of the budget", type: "category" }, { title: who }));
}

function drawForecast(found) {
  byId("forecast").textContent = found ? found.text : "";
}

function drawFlow(found, running) {
  byId("flow-text").textContent = found.overall === null ? ""
    : `${number(found.recent)} events per second in the last minute, ${number(found.overall)} since the start.`;
  if (!found.clock.length) {
    empty("flow", running ? "Nothing read yet. Events per second and how many wait are drawn here."
      : "The run was over before there was anything to draw.");
    return;
  }
  const x = found.clock.map(moment);
  const traces = [curve(x, found.rate, "events/s", "blue")];
  const known = found.lag.some((lag) => lag !== null);
  const lag = known ? found.lag : found.behind;
  const label = known ? "events not read yet" : "seconds behind the newest event";
  const more = { showlegend: true };
  if (lag.some((value) => value !== null)) {
    traces.push({ ...curve(x, lag, label, "orange", { dash: "dot" }), yaxis: "y2" });
    more.yaxis2 = { overlaying: "y", side: "right", showgrid: false, title: { text: label, standoff: 8 }, tickmode: "auto", nticks: 5, range: [0, Math.max(1, 1.1 * Math.max(...lag))] };
    more.margin = { l: 52, r: 64, t: 8, b: 40 };
  }
  draw("flow", traces, layout({ title: "clock (UTC)", type: "date" },
    { title: "events/s", range: [0, Math.max(1, 1.1 * Math.max(...found.rate))] }, more));
}

function drawRejects(found) {
  const reasons = Object.keys(found).filter((reason) => found[reason] > 0);
  if (!reasons.length) {
    empty("rejects", "None so far: every record was used. Reasons are drawn here.");
    return;
  }
  draw("rejects", [{ x: reasons.map((r) => found[r]), y: reasons, type: "bar", orientation: "h", marker: { color: color("orange") },
    width: reasons.length < 4 ? 0.4 : 0.75, text: reasons.map((r) => number(found[r])), textposition: "auto", insidetextfont: { color: color("card") } }],
    layout({ title: "records", rangemode: "tozero" }, { title: "", autorange: "reversed", type: "category" }));
}
