"use strict";
// Draws what is in the page's JSON. Text is only ever set as text, never as HTML.
(() => {
  const ROWS_MAX = 200;
  const root = document.documentElement;
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const holder = document.getElementById("charts");
  const charts = holder ? JSON.parse(holder.textContent) : [];
  const drawn = new Map();

  const make = (name, cls, text) => {
    const node = document.createElement(name);
    if (cls) node.className = cls;
    if (text !== undefined) node.textContent = text;
    return node;
  };
  const color = (name) => getComputedStyle(root).getPropertyValue("--" + name).trim();
  const inkOf = (ink) => color(typeof ink === "string" ? ink : "n" + (ink.nth % 6));
  const pale = (hex, share) => hex + Math.round(share * 255).toString(16).padStart(2, "0");
  const number = (v) => {
    if (v === null || v === undefined || Number.isNaN(v)) return "";
    const size = Math.abs(v);
    if (size >= 100) return Math.round(v).toLocaleString("en");
    return String(Number(v.toFixed(size >= 10 ? 1 : 2)));
  };
  const short = (v) => {
    if (v === null || v === undefined) return "";
    if (Math.abs(v) >= 1e6) return number(v / 1e6) + "M";
    if (Math.abs(v) >= 1e4) return number(v / 1e3) + "k";
    return number(v);
  };

  // What a chart shows, as columns and rows of plain values.
  const tableOf = (chart) => {
    switch (chart.kind) {
      case "plot":
        return {
          head: [chart.x.label, ...chart.series.map((s) => s.name)],
          rows: chart.xs.map((x, i) => [x, ...chart.series.map((s) => s.data[i])]),
        };
      case "waterfall":
        return {
          head: ["begin, ms", ...chart.parts.map((part) => part + " until, ms"), "end, ms", "outcome"],
          rows: chart.begin.map((b, i) => [b, ...chart.steps[i], chart.end[i], chart.word[i]]),
        };
      case "stack":
        return {
          head: ["", ...chart.parts.map((part) => part + ", " + chart.unit)],
          rows: chart.bars.map(([name, parts]) => [name, ...parts]),
        };
      default:
        return {
          head: ["method", ...chart.columns.flatMap((c) => [c + ", agree", c + ", of"])],
          rows: chart.rows.map(([name, cells]) => [name, ...cells.flat()]),
        };
    }
  };
  const csvOf = ({ head, rows }) => {
    const field = (value) => {
      let text = value === null || value === undefined ? "" : String(value);
      if (typeof value === "string" && /^[=+\-@\t\r]/.test(text)) text = "'" + text;
      return /[",\r\n]/.test(text) ? '"' + text.replaceAll('"', '""') + '"' : text;
    };
    return [head, ...rows].map((row) => row.map(field).join(",")).join("\n") + "\n";
  };
  const addData = (figure, chart) => {
    const line = make("div", "data");
    const details = make("details");
    details.append(make("summary", "", "data"));
    details.addEventListener("toggle", () => {
      if (!details.open || details.childElementCount > 1) return;
      const { head, rows } = tableOf(chart);
      const box = make("div", "rows");
      const table = make("table");
      const top = make("thead");
      const first = make("tr");
      for (const name of head) first.append(make("th", "", name));
      top.append(first);
      const body = make("tbody");
      for (const row of rows.slice(0, ROWS_MAX)) {
        const tr = make("tr");
        for (const value of row) {
          const text = typeof value === "string";
          tr.append(make("td", text ? "" : "n", text ? value : number(value)));
        }
        body.append(tr);
      }
      table.append(top, body);
      box.append(table);
      details.append(box);
      if (rows.length > ROWS_MAX) {
        details.append(make("div", "note", `the first ${ROWS_MAX} of ${rows.length} rows; all are in the CSV`));
      }
    });
    const link = make("a", "csv", "CSV");
    link.download = (chart.title || "chart").replace(/[^a-z0-9]+/gi, "-") + ".csv";
    link.href = "#";
    link.addEventListener("click", () => {
      link.href = "data:text/csv;charset=utf-8," + encodeURIComponent(csvOf(tableOf(chart)));
    });
    line.append(details, link);
    figure.append(line);
  };

  const axisOf = (axis, scale, side) => ({
    scale,
    side,
    label: axis.label,
    labelSize: 18,
    labelFont: "11px system-ui, sans-serif",
    font: "11px system-ui, sans-serif",
    stroke: color("soft"),
    size: side % 2 ? 46 : 32,
    gap: 4,
    grid: { show: side !== 1, stroke: color("rule"), width: 1 },
    ticks: { stroke: color("rule"), width: 1, size: 4 },
    values: (_, splits) => splits.map(short),
  });
  // The next of 1, 2 and 5 times a power of ten.
  const roundTo = (value, up) => {
    const power = 10 ** Math.floor(Math.log10(value));
    const steps = [1, 2, 5, 10].map((step) => step * power);
    return up ? steps.find((step) => step >= value * 0.999) : steps.findLast((step) => step <= value * 1.001);
  };
  const scaleOf = (axis, padded) => {
    const scale = { time: false };
    if (axis.log) scale.distr = 3;
    if (axis.range) scale.range = () => axis.range;
    else if (axis.log && padded) {
      // Round ends, so that there is always more than one tick.
      scale.range = (_, low, high) => {
        const from = Math.max(low || 0.1, 1e-3);
        return [roundTo(from * 0.97, false), roundTo(Math.max(high || 1, from * 1.5), true)];
      };
    } else if (axis.log) {
      scale.range = (_, low, high) => [low, high > low ? high : low * 2];
    } else if (padded) scale.range = (_, low, high) => [Math.min(0, low), (high || 1) * 1.06];
    return scale;
  };
  // On a log axis each power of ten and, where these are few, 2 and 5 times it; on a short one
  // even steps.
  const logTicks = (u, axis, low, high) => {
    const ticks = [];
    if (high / low < 6) {
      const step = roundTo((high - low) / 4, true);
      for (let at = Math.ceil(low / step) * step; at <= high * 1.001; at += step) ticks.push(at);
      return ticks;
    }
    const wide = Math.log10(high / low) > 3;
    for (let power = Math.floor(Math.log10(low)); power <= Math.ceil(Math.log10(high)); power++) {
      for (const step of wide ? [1] : [1, 2, 5]) {
        const at = step * 10 ** power;
        if (at >= low * 0.999 && at <= high * 1.001) ticks.push(at);
      }
    }
    return ticks;
  };

  const drawMarks = (marks) => (u) => {
    const { ctx, bbox } = u;
    const ratio = devicePixelRatio;
    ctx.save();
    ctx.font = `${11 * ratio}px system-ui, sans-serif`;
    ctx.setLineDash([5 * ratio, 4 * ratio]);
    ctx.lineWidth = 1.5 * ratio;
    let row = 0;
    for (const mark of marks) {
      ctx.strokeStyle = ctx.fillStyle = color(mark.predicted ? "quiet" : "ink");
      ctx.beginPath();
      if (mark.x !== null) {
        const x = u.valToPos(mark.x, "x", true);
        if (x < bbox.left || x > bbox.left + bbox.width) continue;
        const y = bbox.top - (5 + 13 * row++) * ratio;
        ctx.moveTo(x, y);
        ctx.lineTo(x, bbox.top + bbox.height);
        ctx.stroke();
        // The word stands above the chart, where it hides nothing.
        const left = x + ctx.measureText(mark.label).width > bbox.left + bbox.width;
        ctx.textAlign = left ? "right" : "left";
        const width = ctx.measureText(mark.label).width;
        const from = left ? x - 4 * ratio - width : x + 4 * ratio;
        ctx.clearRect(from - ratio, y - 4 * ratio, width + 2 * ratio, 12 * ratio);
        ctx.fillText(mark.label, left ? x - 4 * ratio : x + 4 * ratio, y + 6 * ratio);
      } else {
        const y = u.valToPos(mark.y, "y", true);
        if (y < bbox.top || y > bbox.top + bbox.height) continue;
        ctx.moveTo(bbox.left, y);
        ctx.lineTo(bbox.left + bbox.width, y);
        ctx.stroke();
        ctx.textAlign = "right";
        ctx.fillText(mark.label, bbox.left + bbox.width - 6 * ratio, y - 9 * ratio);
      }
    }
    ctx.restore();
  };

  const seriesOf = (series, points) => {
    const ink = inkOf(series.ink);
    const base = {
      label: series.name,
      scale: series.second ? "second" : "y",
      stroke: ink,
      width: 2,
      spanGaps: true,
      value: (_, v) => number(v),
      points: { show: false },
    };
    switch (series.style) {
      case "dashed":
        return { ...base, dash: [6, 5], width: 1.5 };
      case "points":
        return {
          ...base,
          paths: () => null,
          points: { show: true, size: points > 300 ? 4 : 8, width: 0, fill: points > 300 ? pale(ink, 0.55) : ink },
        };
      case "step":
        return { ...base, paths: uPlot.paths.stepped({ align: 1 }), fill: pale(ink, 0.12), points: { show: true, size: 5, fill: ink } };
      case "bars":
        return { ...base, paths: uPlot.paths.bars({ size: [0.9, 14] }), fill: pale(ink, 0.5), width: 0 };
      default:
        return { ...base, points: { show: points < 40, size: 5, fill: ink } };
    }
  };
  const drawPlot = (chart, place) => {
    const axes = [axisOf(chart.x, "x", 2), axisOf(chart.y, "y", 3)];
    const scales = { x: scaleOf(chart.x, false), y: scaleOf(chart.y, true) };
    if (chart.x.log) axes[0].splits = logTicks;
    if (chart.y.log) axes[1].splits = logTicks;
    if (chart.x.log || chart.y.log) for (const axis of axes) axis.filter = (_, splits) => splits;
    if (!chart.x.log && !chart.x.range) {
      const [low, high] = [chart.xs[0] ?? 0, chart.xs[chart.xs.length - 1] ?? 1];
      const room = (high - low) * 0.03 || 1;
      scales.x.range = (u, from, to) => (from === low && to === high ? [Math.max(low - room, Math.min(low, 0)), high + room] : [from, to]);
    }
    if (chart.second) {
      axes.push({ ...axisOf(chart.second, "second", 1), grid: { show: false } });
      scales.second = scaleOf(chart.second, true);
    }
    const above = chart.marks.filter((mark) => mark.x !== null).length;
    return new uPlot(
      {
        width: place.clientWidth,
        height: 250 + 13 * above,
        padding: [12 + 13 * above, chart.second ? 0 : 14, 0, 0],
        scales,
        axes,
        series: [{ label: chart.x.label, value: (_, v) => number(v) }, ...chart.series.map((s) => seriesOf(s, chart.xs.length))],
        cursor: { points: { size: 7 }, focus: { prox: 24 } },
        legend: { markers: { width: 0, fill: (_, i) => (i ? inkOf(chart.series[i - 1].ink) : "transparent") } },
        hooks: { draw: [drawMarks(chart.marks)] },
      },
      [chart.xs, ...chart.series.map((s) => s.data)],
      place,
    );
  };

  const addKey = (place, parts) => {
    const key = make("div", "key");
    for (const [name, ink] of parts) {
      const item = make("span");
      const dot = make("i");
      dot.style.background = ink;
      item.append(dot, name);
      key.append(item);
    }
    place.append(key);
  };

  const drawWaterfall = (chart, place) => {
    const length = (i, n) => chart.steps[i][n] - (n ? chart.steps[i][n - 1] : chart.begin[i]);
    const seen = chart.parts.map((part, n) => [part, partInk(n), n]).filter(([, , n]) => chart.steps.some((_, i) => length(i, n) > 0));
    addKey(place, [...seen.map(([part, ink]) => [part, ink]), ["failed", "var(--bad)"]]);
    const count = chart.begin.length;
    const rows = chart.begin.map((_, i) => i);
    const bars = (u) => {
      const { ctx, bbox } = u;
      const bad = color("bad");
      const inks = chart.parts.map((_, n) => color(partInk(n).slice(6, -1)));
      ctx.save();
      ctx.beginPath();
      ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
      ctx.clip();
      const high = Math.max(1, Math.abs(u.valToPos(1, "y", true) - u.valToPos(0, "y", true)) * 0.86);
      for (let i = 0; i < count; i++) {
        const y = u.valToPos(i, "y", true);
        const at = (ms) => u.valToPos(ms, "x", true);
        const [from, to] = [at(chart.begin[i]), at(chart.end[i])];
        ctx.fillStyle = chart.good[i] ? inks[5] : bad;
        ctx.fillRect(from, y, Math.max(1, to - from), high);
        if (!chart.good[i]) continue;
        chart.steps[i].forEach((until, n) => {
          const left = at(until - length(i, n));
          const right = n + 1 === chart.parts.length ? to : at(until);
          if (right - left < 0.5) return;
          ctx.fillStyle = inks[n];
          ctx.fillRect(left, y, right - left, high);
        });
      }
      ctx.restore();
    };
    return new uPlot(
      {
        width: place.clientWidth,
        height: 230,
        scales: {
          x: { time: false, range: (u, low, high) => (u.data && low === chart.begin[0] ? [0, chart.until * 1.02] : [low, high]) },
          y: { dir: -1, range: () => [0, Math.max(count, 1)] },
        },
        axes: [axisOf({ label: "ms since the first call" }, "x", 2), { ...axisOf({ label: "call" }, "y", 3), grid: { show: false } }],
        series: [
          { label: "begin, ms", value: (_, v) => number(v) },
          { label: "call", paths: () => null, points: { show: false }, value: (_, v) => number(v) },
          { label: "took, ms", scale: "y", paths: () => null, points: { show: false }, value: (u, v, s, i) => (i === null ? "" : number(chart.end[i] - chart.begin[i])) },
          { label: "outcome", scale: "y", paths: () => null, points: { show: false }, value: (u, v, s, i) => (i === null ? "" : chart.word[i]) },
        ],
        cursor: {
          points: { show: false },
          dataIdx: (u, s, i) => {
            if (u.cursor.top < 0) return i;
            return Math.min(count - 1, Math.max(0, Math.floor(u.posToVal(u.cursor.top, "y"))));
          },
        },
        legend: { markers: { show: false } },
        hooks: { draw: [bars] },
      },
      [chart.begin, rows, rows, rows],
      place,
    );
  };

  const drawStack = (chart, place) => {
    const sum = (parts) => parts.reduce((a, b) => a + b, 0);
    const most = Math.max(...chart.bars.map(([, parts]) => sum(parts)), 1e-9);
    if (chart.parts.length > 1) {
      addKey(place, chart.parts.map((part, n) => [part, partInk(n)]));
    }
    const note = make("div", "note", "");
    for (const [name, parts] of chart.bars) {
      const bar = make("div", "bar");
      const track = make("div", "track");
      parts.forEach((value, n) => {
        if (!value) return;
        const part = make("span");
        part.style.width = (100 * value) / most + "%";
        part.style.background = partInk(n);
        part.title = `${chart.parts[n]}: ${number(value)} ${chart.unit}`;
        part.addEventListener("pointerenter", () => (note.textContent = `${name}, ${part.title}`));
        track.append(part);
      });
      bar.append(make("span", "name", name), track, make("span", "sum", number(sum(parts)) + " " + chart.unit));
      place.append(bar);
    }
    place.append(note);
  };
  const partInk = (n) => ["var(--n0)", "var(--n5)", "var(--n2)", "var(--n4)", "var(--quiet)", "var(--n1)", "var(--n3)"][n % 7];

  const drawMatrix = (chart, place) => {
    const box = make("div", "wide");
    const table = make("table");
    const top = make("tr");
    top.append(make("th", "", "method"));
    for (const name of chart.columns) top.append(make("th", "n", name));
    table.append(top);
    for (const [name, cells] of chart.rows) {
      const row = make("tr");
      row.append(make("td", "", name));
      for (const [agree, of] of cells) {
        const cell = make("td", "n", of ? `${agree} of ${of}` : "-");
        if (of) {
          const wrong = 1 - agree / of;
          const strong = wrong === 0 ? 22 : 20 + 60 * Math.sqrt(wrong);
          cell.style.background = `color-mix(in srgb, var(--${wrong ? "bad" : "good"}) ${strong}%, transparent)`;
          cell.title = `${((100 * agree) / of).toFixed(2)} % agree`;
        }
        row.append(cell);
      }
      table.append(row);
    }
    box.append(table);
    place.append(box);
  };

  const draw = (figure) => {
    const chart = charts[Number(figure.dataset.chart)];
    drawn.get(figure)?.plot?.destroy();
    let place = figure.querySelector(".canvas");
    if (!place) {
      figure.append(make("figcaption", "", chart.title));
      place = make("div", "canvas");
      figure.append(place);
      addData(figure, chart);
    }
    place.replaceChildren();
    let plot = null;
    if (chart.kind === "plot") plot = drawPlot(chart, place);
    else if (chart.kind === "waterfall") plot = drawWaterfall(chart, place);
    else if (chart.kind === "stack") drawStack(chart, place);
    else drawMatrix(chart, place);
    drawn.set(figure, { plot, place });
  };
  const drawAll = () => document.querySelectorAll("figure[data-chart]").forEach(draw);

  const paint = (theme) => {
    root.dataset.theme = theme;
    drawAll();
  };
  paint(dark.matches ? "dark" : "light");
  dark.addEventListener("change", (event) => paint(event.matches ? "dark" : "light"));
  document.getElementById("theme").addEventListener("click", () => {
    paint(root.dataset.theme === "dark" ? "light" : "dark");
  });
  const fit = () => {
    for (const { plot, place } of drawn.values()) {
      if (plot && place.clientWidth && plot.width !== place.clientWidth) {
        plot.setSize({ width: place.clientWidth, height: plot.height });
      }
    }
  };
  // Not within the observer's own turn: a chart that grows there would be observed again.
  const widths = new ResizeObserver(() => requestAnimationFrame(fit));
  for (const { place } of drawn.values()) widths.observe(place);
})();
