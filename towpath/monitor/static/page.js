// The live part of the pages: sections that have changed replace those on the page, charts grow, ages count on.
"use strict";

const pipeline = document.getElementById("pipeline");
const name = pipeline ? pipeline.dataset.name : "";

function age(seconds) {
  if (seconds < 90) return `${Math.round(seconds)} s`;
  if (seconds < 5400) return `${Math.round(seconds / 60)} min`;
  return seconds < 172800 ? `${(seconds / 3600).toFixed(1)} h` : `${Math.round(seconds / 86400)} days`;
}

function showAges() {
  for (const time of document.querySelectorAll("time[data-at]")) {
    const text = `${age(Math.max(0, Date.now() / 1000 - time.dataset.at))} ago`;
    if (!time.title) time.title = time.textContent;
    if (time.textContent !== text) time.textContent = text;
  }
}

// What is open, what has the focus and how far a list is scrolled stays as it is.
function replace(id, html) {
  const place = document.getElementById(id);
  if (!place) return;
  const open = new Map([...place.querySelectorAll("details[data-key]")].map((each) => [each.dataset.key, each.open]));
  const focus = place.contains(document.activeElement) ? document.activeElement : null;
  const index = focus ? [...place.querySelectorAll(focus.tagName)].indexOf(focus) : -1;
  const scrolled = [...place.querySelectorAll("ul, pre")].map((each) => each.scrollTop);
  place.innerHTML = html;
  for (const each of place.querySelectorAll("details[data-key]")) {
    if (open.has(each.dataset.key)) each.open = open.get(each.dataset.key);
  }
  [...place.querySelectorAll("ul, pre")].forEach((each, number) => { each.scrollTop = scrolled[number] || 0; });
  if (focus) [...place.querySelectorAll(focus.tagName)][index]?.focus({ preventScroll: true });
  showAges();
}

// Charts: the columns of /api/v1/pipelines/NAME/history

const charts = [];
let samples = [];

function color(variable) {
  return getComputedStyle(document.documentElement).getPropertyValue(variable).trim();
}

function xRange(self, low, high) {
  if (low === null || !samples.length) return [Date.now() / 1000 - 60, Date.now() / 1000];
  return [Math.min(low, high - 60), high];
}

function draw(id, series, unit) {
  const place = document.getElementById(id);
  const shown = (value) => (value === null || value === undefined ? "" : `${value.toLocaleString("en", { maximumFractionDigits: 1 })}${unit}`);
  const clock = (at, long) => new Date(at * 1000).toISOString().slice(11, long ? 19 : 16);
  const axis = () => ({ stroke: color("--quiet"), grid: { stroke: color("--line"), width: 1 }, ticks: { stroke: color("--line"), width: 1 } });
  const chart = new uPlot({
    width: place.clientWidth, height: 190,
    padding: [null, 28, null, null],  // space for half of the last label
    cursor: { y: false },
    legend: { live: true },
    tzDate: (at) => uPlot.tzDate(new Date(at * 1000), "Etc/UTC"),
    scales: { x: { time: true, range: xRange }, y: { range: (self, low, high) => [0, Math.max(high || 0, 1) * 1.05] } },
    axes: [{ ...axis(), space: 70, values: (self, ats, number, space, step) => ats.map((at) => clock(at, step < 60)) }, { ...axis(), size: 66, values: (self, values) => values.map(shown) }],
    series: [
      { label: "at", value: (self, at) => (at ? `${clock(at, true)} UTC` : "") },
      ...series.map(({ label, stroke, dash }) => ({ label, stroke: color(stroke), dash, width: 2, points: { show: false }, value: (self, value) => shown(value) })),
    ],
  }, series.map(() => []).concat([[]]), place);
  charts.push({ chart, place, columns: series.map((each) => each.column), series, unit });
}

function update() {
  for (const { chart, place, columns, series, unit } of charts) {
    chart.setData([samples.map((each) => each[0]), ...columns.map((column) => samples.map((each) => each[column]))]);
    if (chart.cursor.idx === null || chart.cursor.idx === undefined) chart.setLegend({ idx: samples.length ? samples.length - 1 : null });
    const last = samples[samples.length - 1];
    const words = series.map((each) => `${each.label} ${last && last[each.column] !== null ? last[each.column] + unit : "unknown"}`);
    place.setAttribute("aria-label", `Over the last hour; now ${words.join(", ")}`);
  }
}

function makeCharts() {
  for (const { chart } of charts.splice(0)) chart.destroy();
  draw("chart-lag", [
    { label: "source to log", column: 1, stroke: "--one" },
    { label: "log to destination", column: 2, stroke: "--two", dash: [6, 3] },
  ], " s");
  draw("chart-rate", [
    { label: "into the log", column: 3, stroke: "--one" },
    { label: "applied", column: 4, stroke: "--two", dash: [6, 3] },
  ], "/s");
  update();
}

async function readHistory() {
  const answer = await fetch(`/api/v1/pipelines/${encodeURIComponent(name)}/history`);
  if (answer.ok) samples = (await answer.json()).samples;
  update();
}

function addSample(sample) {
  samples.push(sample);
  while (samples.length && samples[0][0] < sample[0] - 3600) samples.shift();
  if (!document.hidden) update();
}

// Commands

async function command(button) {
  const answer = document.getElementById("answer");
  if (button.dataset.why && !window.confirm(button.dataset.why)) return;
  button.disabled = true;
  try {
    const got = await fetch(`/api/v1/pipelines/${encodeURIComponent(name)}/${button.dataset.command}`, { method: "POST" });
    const value = await got.json();
    const refused = got.status === 401 ? "you are signed out: load the page again, and sign in" : value.error;
    answer.textContent = `${button.textContent}: ${got.ok ? "started; see Events." : refused}`;
  } catch (error) {
    answer.textContent = `${button.textContent}: ${error.message}`;
  }
  button.disabled = false;
}

// Updates

let source = null;
let lost = false;

function follow() {
  const connection = document.getElementById("connection");
  source?.close();
  source = new EventSource(name ? `/updates?pipeline=${encodeURIComponent(name)}` : "/updates");
  source.onopen = () => {
    connection.hidden = true;
    if (lost && name) readHistory();
    lost = false;
  };
  source.onerror = () => {
    lost = true;
    connection.textContent = "no connection; what you see is old";
    connection.hidden = false;
    if (source.readyState === EventSource.CLOSED) setTimeout(followAgain, 2000);
  };
  source.addEventListener("section", (event) => { const { id, html } = JSON.parse(event.data); replace(id, html); });
  source.addEventListener("row", (event) => { const { id, html } = JSON.parse(event.data); replace(id, html); });
  source.addEventListener("sample", (event) => addSample(JSON.parse(event.data)));
}

// The server has refused: it has too many clients, or it has started again and knows no one who had signed in.
async function followAgain() {
  const answer = await fetch("/updates", { method: "HEAD" }).catch(() => null);
  if (answer && answer.status === 401) location.assign("/login");
  else follow();
}

showAges();
setInterval(showAges, 1000);
if (name) {
  makeCharts();
  readHistory();
  for (const button of document.querySelectorAll("[data-command]")) button.addEventListener("click", () => command(button));
  window.addEventListener("resize", () => {
    for (const { chart, place } of charts) chart.setSize({ width: place.clientWidth, height: 190 });
    update();
  });
  window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", makeCharts);
  document.addEventListener("visibilitychange", () => { if (!document.hidden) update(); });
}
if (name || document.getElementById("overview")) {
  follow();
  window.addEventListener("pagehide", () => source.close());
  window.addEventListener("pageshow", (event) => {
    if (!event.persisted) return;
    lost = true;  // back from the browser's cache
    followAgain();
  });
}
