"use strict";
// The interactive picture: rows on their first singular directions, on a canvas. One closure, no library, no request.
// What comes from the record reaches the page through textContent and fillText only, never as markup.
(() => {
  const root = document.documentElement;
  root.classList.add("scripted"); // the style sheet then shows controls, and this picture in place of the drawings once it is drawn
  const LAYERS = 8, CELL = 16, MARGIN = 36, TILT = { yaw: 0.55, pitch: 0.35 };
  const clamp = (x, low, high) => Math.min(high, Math.max(low, x));
  const css = (name) => getComputedStyle(root).getPropertyValue(name).trim();
  const spaced = (n) => String(n).replace(/\B(?=(\d{3})+$)/g, ",");
  const short = (x) => (x && (Math.abs(x) < 1e-3 || Math.abs(x) >= 1e5) ? x.toExponential(2) : String(+x.toPrecision(3)));

  // Numbers: what the record holds, and where it lies on the canvas.
  const decode = (text, Kind) => new Kind(Uint8Array.from(atob(text), (c) => c.charCodeAt(0)).buffer); // little-endian, as here
  function rotation({ yaw, pitch }) { // its rows: to the right, up, toward the reader
    const [cy, sy, cp, sp] = [Math.cos(yaw), Math.sin(yaw), Math.cos(pitch), Math.sin(pitch)];
    return [cy, 0, sy, sy * sp, cp, -cy * sp, -sy * cp, sp, cy * cp];
  }
  function place(p, x, y, z) {
    const { middle: m } = p.cloud, { scale: k } = p.view, r = rotation(p.view), [u, v, w] = [x - m[0], y - m[1], z - m[2]];
    return [p.width / 2 + p.view.x + k * (r[0] * u + r[2] * w), p.height / 2 + p.view.y - k * (r[3] * u + r[4] * v + r[5] * w)];
  }
  const onAxis = (p, axis, v) => place(p, ...[0, 1, 2].map((a) => (a === axis ? v : 0)));
  function project(p) { // where each point lies, and in which cell of a grid over the canvas, -1 for none
    const r = rotation(p.view), { xyz, middle: m } = p.cloud, k = p.view.scale;
    const left = p.width / 2 + p.view.x, top = p.height / 2 + p.view.y;
    p.columns = Math.ceil(p.width / CELL); p.lines = Math.ceil(p.height / CELL);
    for (let i = 0; i < p.n; i++) {
      const u = xyz[3 * i] - m[0], v = xyz[3 * i + 1] - m[1], w = xyz[3 * i + 2] - m[2];
      const x = (p.sx[i] = left + k * (r[0] * u + r[2] * w)), y = (p.sy[i] = top - k * (r[3] * u + r[4] * v + r[5] * w));
      const inside = x >= 0 && x < p.width && y >= 0 && y < p.height;
      p.keys[i] = inside ? Math.floor(y / CELL) * p.columns + Math.floor(x / CELL) : -1;
      p.depth[i] = r[6] * u + r[7] * v + r[8] * w;
    }
  }
  const span = (values, v) => [values.reduce((a, b) => Math.min(a, b), v), values.reduce((a, b) => Math.max(a, b), v)];
  function framed(p, angles, all) { // the view from this side with the points and the origin, as large as the canvas allows
    const beyond = new Set(all ? [] : p.data.beyond[p.mode]), within = (places) => (beyond.size ? places.filter((_, i) => !beyond.has(i)) : places);
    const before = p.view; p.view = { ...angles, scale: 1, x: -p.width / 2, y: -p.height / 2 };
    project(p);
    const o = place(p, 0, 0, 0), [left, right] = span(within(p.sx), o[0]), [top, bottom] = span(within(p.sy), o[1]);
    p.view = before;
    const scale = Math.min((p.width - 2 * MARGIN) / (right - left || 1e-9), (p.height - 2 * MARGIN) / (bottom - top || 1e-9));
    return { ...angles, scale, x: (-scale * (left + right)) / 2, y: (-scale * (top + bottom)) / 2 };
  }
  function bucket(p, size, items) { // sorts points by their keys without -1; returns where each key starts
    const ends = new Uint32Array(size + 1);
    for (let i = 0; i < p.n; i++) if (p.keys[i] >= 0) ends[p.keys[i]]++;
    for (let key = 0; key < size; key++) ends[key + 1] += ends[key];
    for (let i = p.n - 1; i >= 0; i--) if (p.keys[i] >= 0) items[--ends[p.keys[i]]] = i;
    return ends;
  }
  function nearest(p, x, y, reach) {
    const cell = (v, most) => clamp(Math.floor(v / CELL), 0, most - 1);
    let [best, found] = [reach * reach, -1];
    for (let row = cell(y - reach, p.lines); row <= cell(y + reach, p.lines); row++) {
      const [from, to] = [x - reach, x + reach].map((v) => row * p.columns + cell(v, p.columns));
      for (let k = p.cells[from]; k < p.cells[to + 1]; k++) {
        const i = p.items[k], away = (p.sx[i] - x) ** 2 + (p.sy[i] - y) ** 2;
        if (away < best) { best = away; found = i; }
      }
    }
    return found;
  }

  // Drawing: points below, words and marks on a canvas of their own above, so that hovering redraws no point.
  function paint(p) {
    p.waiting = 0;
    project(p);
    p.cells = bucket(p, p.columns * p.lines, p.items);
    const squares = p.cells.reduce((sum, end, c) => sum + (c ? (end - p.cells[c - 1]) ** 2 : 0), 0);
    const crowd = squares / (p.cells.at(-1) * CELL * CELL) || 1e-6; // points per pixel around the average point
    p.size = clamp(0.75 / Math.sqrt(crowd), 1.8, 7);
    const g = clean(p, p.points), solid = clamp(1.1 / (crowd * p.size * p.size), 0.2, 0.9), colours = p.palette.length;
    const deep = p.dims === 3, [far, near] = span(p.depth, 0), byGroup = p.colour.value === "group";
    backdrop(p, g);
    for (let i = 0; i < p.n; i++) { // far points first; in the plane layers are random, so that no colour is on top
      if (p.keys[i] < 0) continue;
      const lot = byGroup ? 0 : Math.imul(i, 0x9e3779b1) >>> 29, layer = ((p.depth[i] - far) / (near - far || 1)) * LAYERS;
      p.keys[i] = (deep ? Math.min(LAYERS - 1, Math.floor(layer)) : lot) * colours + p.shade[i];
    }
    const starts = bucket(p, LAYERS * colours, p.drawn);
    for (let key = 0; key < LAYERS * colours; key++) {
      g.fillStyle = p.palette[key % colours];
      g.globalAlpha = deep ? solid * (0.4 + (0.6 * (Math.floor(key / colours) + 1)) / LAYERS) : solid;
      for (let k = starts[key]; k < starts[key + 1]; k++) dot(g, p.sx[p.drawn[k]], p.sy[p.drawn[k]], p.size);
    }
    mark(p);
  }
  function clean(p, canvas) {
    const g = canvas.getContext("2d");
    g.setTransform(p.ratio, 0, 0, p.ratio, 0, 0); g.globalAlpha = 1; g.clearRect(0, 0, p.width, p.height);
    return g;
  }
  function dot(g, x, y, size) {
    if (size < 3) return g.fillRect(x - size / 2, y - size / 2, size, size);
    g.beginPath(); g.arc(x, y, size / 2, 0, 2 * Math.PI); g.fill();
  }
  function line(g, points, width, colour) {
    Object.assign(g, { lineWidth: width, strokeStyle: colour, lineJoin: "round" });
    g.beginPath(); for (const xy of points) g.lineTo(...xy); g.stroke();
  }
  function words(p, g, text, [x, y]) { // kept inside the canvas, with an outline that separates them from the points
    if (x < 0 || x > p.width || y < -12 || y > p.height + 20) return;
    g.font = `600 12px ${getComputedStyle(p.stage).fontFamily}`;
    const wide = g.measureText(text).width;
    const left = clamp(x - wide / 2, 4, Math.max(4, p.width - wide - 4)), lows = [0, 15, -15, 30, -30].map((by) => clamp(y + by, 14, p.height - 5));
    const to = [left, lows.find((low) => p.written.every(([l, r, b]) => left > r || left + wide < l || Math.abs(low - b) > 14)) ?? lows[0]];
    p.written.push([left, left + wide, to[1]]);
    Object.assign(g, { lineWidth: 4, lineJoin: "round", strokeStyle: css("--panel"), fillStyle: css("--ink") });
    g.strokeText(text, ...to); g.fillText(text, ...to);
  }
  function backdrop(p, g) { // the cone that holds most rows, and the axes through the origin
    const o = place(p, 0, 0, 0), edge = p.data.rims[p.mode][p.dims - 2].map((xyz) => place(p, ...xyz));
    g.fillStyle = css("--hot");
    g.beginPath();
    for (let k = 1; k < edge.length; k++) { // all triangles turn the same way, so that none cancels another
      const [[x, y], [z, w]] = [edge[k - 1], edge[k]], left = (x - o[0]) * (w - o[1]) < (y - o[1]) * (z - o[0]) ? 1 : 0;
      g.moveTo(...o); g.lineTo(...edge[k - 1 + left]); g.lineTo(...edge[k - left]); g.closePath();
    }
    g.globalAlpha = 0.08; g.fill();
    g.globalAlpha = 0.45; line(g, edge, 1.2, css("--hot"));
    g.globalAlpha = 1;
    for (let a = 0; a < p.dims; a++) line(g, [p.cloud.low[a], p.cloud.high[a]].map((v) => onAxis(p, a, v)), 1.2, css("--axis"));
  }
  function lettering(p, g) { // the origin, the mean row, the axes' numbers, a bar of known length
    const { mean, high } = p.cloud, ink = css("--ink"), [x, y] = place(p, 0, 0, 0);
    const m = place(p, ...mean.map((v, a) => (a < p.dims ? v : 0)));
    p.written = []; for (let a = 0; a < p.dims; a++) words(p, g, `axis ${a + 1}`, onAxis(p, a, high[a]).map((v, k) => v - 8 * k));
    line(g, [[x - 7, y], [x + 7, y]], 1.4, ink); line(g, [[x, y - 7], [x, y + 7]], 1.4, ink);
    words(p, g, "origin", [x, y + 20]);
    if (p.mode === "raw" && Math.hypot(m[0] - x, m[1] - y) > 24) {
      g.fillStyle = ink;
      line(g, [[x, y], m], 2, ink); dot(g, ...m, 8);
      words(p, g, p.n < p.data.total ? "mean of these rows" : "mean row", [m[0], m[1] - 12]);
    }
    const most = 90 / p.view.scale, power = 10 ** Math.floor(Math.log10(most));
    const unit = power * [5, 2, 1].find((factor) => factor * power <= most);
    const [right, low, left] = [p.width - 14, p.height - 12, p.width - 14 - unit * p.view.scale];
    line(g, [[left, low - 5], [left, low], [right, low], [right, low - 5]], 1.4, ink);
    words(p, g, short(unit), [(left + right) / 2, low - 6]);
  }
  function mark(p) { // what was found, the words, what is picked, what the pointer is at
    const g = clean(p, p.marks), [ink, panel, hot] = ["--ink", "--panel", "--hot"].map(css), found = p.found ?? [];
    const ring = (i, radius, width, colour) => {
      g.beginPath(); g.arc(p.sx[i], p.sy[i], radius, 0, 2 * Math.PI); g.lineWidth = width; g.strokeStyle = colour; g.stroke();
    };
    p.points.classList.toggle("dimmed", Boolean(p.found));
    for (const i of found) { ring(i, p.size / 2 + 3, 3.4, panel); ring(i, p.size / 2 + 3, 1.4, ink); }
    for (const i of found) { g.fillStyle = p.palette[p.shade[i]]; dot(g, p.sx[i], p.sy[i], Math.max(3.5, p.size)); }
    lettering(p, g);
    for (const i of [p.hovered, p.picked]) if (i >= 0) { ring(i, 8, 5, panel); ring(i, 8, 2.4, i === p.picked ? hot : ink); }
    tip(p, p.hovered >= 0 ? p.hovered : p.picked);
  }
  const again = (p) => { if (p.width) p.waiting ||= requestAnimationFrame(() => paint(p)); };

  // Words about a point.
  const typed = (text) => text.toLowerCase().replaceAll("\u2423", " "); // a typed space finds the mark that is shown for a space
  const name = (p, i) => p.data.labels?.[i] ?? `row ${p.ids[i]}`;
  function about(p, i) {
    const { labels, names, groups, counts } = p.data;
    return [labels?.[i] == null ? "" : `row ${spaced(p.ids[i])}`, names[groups[i]], p.norms && `norm ${short(p.norms[i])}`,
      counts && `count ${spaced(counts[i])}`].filter(Boolean).join(" \u00b7 ");
  }
  function tip(p, i) { // next to the point, inside the picture
    p.tip.hidden = !(i >= 0 && p.sx[i] >= 0 && p.sx[i] <= p.width && p.sy[i] >= 0 && p.sy[i] <= p.height);
    if (p.tip.hidden) return;
    [name(p, i), about(p, i)].forEach((text, k) => { p.tip.children[k].textContent = text; });
    const wide = p.tip.offsetWidth, high = p.tip.offsetHeight, above = p.sy[i] - high - 14;
    p.tip.style.left = `${clamp(p.sx[i] - wide / 2, 4, Math.max(4, p.width - wide - 4))}px`;
    p.tip.style.top = `${above >= 4 ? above : Math.min(p.sy[i] + 14, p.height - high - 4)}px`;
  }

  // Moving, choosing, finding.
  function reset(p, all = false) { // without `all` a few points far away from the others may be outside
    p.view = framed(p, p.dims === 3 ? TILT : { yaw: 0, pitch: 0 }, all);
    p.whole = p.view.scale; p.touched = false; again(p);
  }
  function resize(p) {
    p.width = p.stage.clientWidth; p.height = p.stage.clientHeight; p.ratio = Math.min(devicePixelRatio || 1, 3);
    for (const canvas of [p.points, p.marks]) { canvas.width = p.width * p.ratio; canvas.height = p.height * p.ratio; }
    if (p.width && !p.touched) reset(p);
    if (p.width) paint(p); // at once: resizing a canvas empties it
  }
  function zoom(p, factor, [x, y]) { // about a point of the canvas
    const f = clamp(factor * p.view.scale, p.whole / 4, p.whole * 400) / p.view.scale;
    Object.assign(p.view, { x: (x - p.width / 2) * (1 - f) + p.view.x * f, y: (y - p.height / 2) * (1 - f) + p.view.y * f });
    p.view.scale *= f; p.touched = true; again(p);
  }
  function move(p, dx, dy, panning) {
    if (p.dims === 3 && !panning) { p.view.yaw += dx / 120; p.view.pitch += dy / 120; } else { p.view.x += dx; p.view.y += dy; }
    p.touched = true; again(p);
  }
  function pick(p, i) { // and announce it: screen readers read the status below the picture
    const list = p.found ?? p.all, [x, y] = [p.sx[i], p.sy[i]];
    p.picked = i;
    const where = p.found ? `${spaced(list.indexOf(i) + 1)} of ${spaced(list.length)} found: ` : "";
    p.said.textContent = i < 0 ? "" : `${where}${name(p, i)}: ${about(p, i)}`;
    if (x < 8 || x > p.width - 8 || y < 8 || y > p.height - 8) { p.view.x += p.width / 2 - x; p.view.y += p.height / 2 - y; again(p); }
    mark(p);
  }
  function step(p, way) {
    const list = p.found ?? p.all, now = list.indexOf(p.picked);
    if (list.length) pick(p, list[now < 0 ? (way > 0 ? 0 : list.length - 1) : (now + way + list.length) % list.length]);
  }
  function arrange(p) { // in the order that the reader steps in
    const { xyz, mean } = p.cloud, byId = p.order.value === "id";
    const far = Float64Array.from({ length: p.n }, (_, i) => Math.hypot(...mean.map((m, a) => xyz[3 * i + a] - m)));
    for (const list of [p.all, p.found ?? []]) list.sort((i, j) => (byId ? 0 : far[j] - far[i]) || i - j);
  }
  function search(p) {
    const sought = typed(p.search.value), what = p.data.labels ? "tokens" : "rows";
    p.found = sought ? p.all.filter((i) => p.lower[i].includes(sought)) : null; // in the order of all
    pick(p, -1);
    if (sought) p.said.textContent = `${spaced(p.found.length)} of ${spaced(p.n)} ${what} found${p.found.length ? "; Enter goes to the next" : ""}.`;
  }
  function colour(p) {
    const by = p.colour.value;
    p.palette = css(by === "group" ? "--groups" : "--ramp").split(",");
    p.shade = decode(p.data.shades[by], Uint8Array);
    for (const scale of p.box.querySelectorAll("[data-scale]")) scale.hidden = scale.dataset.scale !== by;
    again(p);
  }
  function show(p) { // apply the switches
    const [mode, dims] = [...p.box.querySelectorAll("input[type=radio]:checked")].map((input) => input.value);
    const numbers = (text) => Float64Array.from(decode(text, Int16Array), (v) => v * p.data.units[mode]);
    p.clouds[mode] ??= { xyz: numbers(p.data[mode]), ...p.data.frames[mode] };
    Object.assign(p, { mode, dims: +dims, cloud: p.clouds[mode] });
    for (const note of p.box.querySelectorAll("[data-note]")) note.hidden = note.dataset.note !== mode + dims;
    arrange(p);
    if (p.width) reset(p);
  }

  // What the reader does.
  function pointers(p) {
    const held = new Map(), on = (what, act) => p.marks.addEventListener(what, act, { passive: false });
    const at = (event) => { const box = p.marks.getBoundingClientRect(); return [event.clientX - box.left, event.clientY - box.top]; };
    let moved = 0;
    on("pointerdown", (event) => {
      p.marks.setPointerCapture(event.pointerId);
      held.set(event.pointerId, at(event)); moved = held.size > 1 ? Infinity : 0;
    });
    on("pointermove", (event) => {
      const now = at(event), old = held.get(event.pointerId), other = [...held].find(([id]) => id !== event.pointerId)?.[1];
      p.hovered = old ? -1 : nearest(p, ...now, 24);
      if (!old) return mark(p);
      const [dx, dy] = [now[0] - old[0], now[1] - old[1]], apart = (xy) => Math.hypot(xy[0] - other[0], xy[1] - other[1]) || 1;
      held.set(event.pointerId, now); moved += Math.hypot(dx, dy);
      if (other) zoom(p, apart(now) / apart(old), now.map((v, a) => (v + other[a]) / 2));
      if (moved >= 4) move(p, dx / (other ? 2 : 1), dy / (other ? 2 : 1), other || event.shiftKey);
    });
    on("pointerup", (event) => { if (held.delete(event.pointerId) && moved < 4) pick(p, nearest(p, ...at(event), 32)); });
    on("pointercancel", (event) => held.delete(event.pointerId));
    on("pointerleave", () => { p.hovered = -1; mark(p); });
    on("dblclick", () => reset(p, true));
    on("wheel", (event) => { // the page scrolls on unless the picture was clicked: nobody gets stuck in it
      if (document.activeElement !== p.marks && !event.ctrlKey) return;
      event.preventDefault();
      zoom(p, Math.exp(-clamp(event.deltaY * (event.deltaMode ? 30 : 1), -300, 300) / 400), at(event));
    });
  }
  function keys(p) {
    const nearer = (factor) => () => zoom(p, factor, [p.width / 2, p.height / 2]), arrow = (x, y) => (event) => move(p, 24 * x, 24 * y, event.shiftKey);
    const actions = {
      ArrowLeft: arrow(-1, 0), ArrowRight: arrow(1, 0), ArrowUp: arrow(0, -1), ArrowDown: arrow(0, 1),
      "+": nearer(1.25), "=": nearer(1.25), "-": nearer(0.8), 0: () => reset(p, true), n: () => step(p, 1), p: () => step(p, -1),
      "/": () => p.search.focus(), Escape: () => pick(p, -1),
    };
    p.marks.addEventListener("keydown", (event) => {
      if (!Object.hasOwn(actions, event.key) || event.ctrlKey || event.metaKey || event.altKey) return;
      event.preventDefault(); actions[event.key](event);
    });
    p.search.addEventListener("keydown", (event) => { if (event.key === "Enter") step(p, event.shiftKey ? -1 : 1); });
  }
  function explore(box) {
    const find = (what) => box.querySelector(what), data = JSON.parse(find("script").textContent), n = data.groups.length;
    const on = (what, when, act) => box.querySelectorAll(what).forEach((element) => element.addEventListener(when, act));
    const floats = () => new Float64Array(n), places = () => new Int32Array(n);
    let id = 0;
    const p = { box, data, n, clouds: {}, view: {}, waiting: 0, hovered: -1, picked: -1, found: null, touched: false, width: 0,
      stage: find(".stage"), points: find(".points"), marks: find(".marks"), tip: find(".tip"), said: find(".said"),
      colour: find(".colour"), order: find(".order"), search: find("input[type=search]"),
      all: [...Array(n).keys()], ids: data.steps.map((more) => (id += more)),
      norms: data.norms && Float64Array.from(decode(data.norms, Uint16Array), (v) => v * data.units.norm),
      sx: floats(), sy: floats(), depth: floats(), keys: places(), items: places(), drawn: places() };
    p.lower = p.all.map((i) => typed(name(p, i)));
    p.marks.place = (i) => [p.sx[i], p.sy[i]]; // where the i-th row of the data lies on the canvas: for tests
    box.closest(".live").classList.add("drawn"); show(p); colour(p); resize(p); pointers(p); keys(p); // drawn before it takes any input
    on("input[type=radio]", "change", () => show(p)); on(".colour", "change", () => colour(p));
    on(".order", "change", () => arrange(p)); on("input[type=search]", "input", () => search(p));
    on(".back", "click", () => step(p, -1)); on(".on", "click", () => step(p, 1)); on(".whole", "click", () => reset(p, true));
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => colour(p));
    new ResizeObserver(() => resize(p)).observe(p.stage);
  }
  document.addEventListener("DOMContentLoaded", () => { // a picture is made once it is near the window: the page comes first
    const begin = ({ isIntersecting, target }) => { if (isIntersecting) { seen.unobserve(target); explore(target); } };
    const seen = new IntersectionObserver((entries) => entries.forEach(begin), { rootMargin: "200px" });
    for (const box of document.querySelectorAll(".explorer")) seen.observe(box);
  });
})();
