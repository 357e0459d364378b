"use strict";
// Adds to each chart its table and its files, and a reading at the pointer. Text is only ever set as
// text, never as HTML. Without it the page has all charts and conclusions.
(() => {
  const ROWS_MAX = 200;
  const PNG_SCALE = 2;
  const NAMESPACE = "http://www.w3.org/2000/svg";
  const root = document.documentElement;
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const holder = document.getElementById("charts");
  const charts = holder ? JSON.parse(holder.textContent) : [];

  const make = (name, cls, text) => {
    const node = document.createElement(name);
    if (cls) node.className = cls;
    if (text !== undefined) node.textContent = text;
    return node;
  };
  const number = (v) => {
    if (v === null || v === undefined || Number.isNaN(v)) return "";
    const size = Math.abs(v);
    if (size >= 100) return Math.round(v).toLocaleString("en");
    return String(Number(v.toFixed(size >= 10 ? 1 : 2)));
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
      case "heat":
        return {
          head: [chart.x.label, "served", "not served", "median, ms"],
          rows: chart.xs
            .map((x, i) => [x, chart.counts[i].reduce((a, b) => a + b, 0), chart.failed[i], chart.median[i]])
            .filter(([, served, failed]) => served + failed > 0),
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
  const fillTable = (details, chart) => {
    const { head, rows } = tableOf(chart);
    const box = make("div", "rows");
    const table = make("table");
    table.append(make("caption", "", chart.title));
    const top = make("thead");
    const first = make("tr");
    for (const name of head) {
      const cell = make("th", "", name);
      cell.scope = "col";
      first.append(cell);
    }
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
  };

  // The chart with its style and title, to stand alone in the colours that are shown.
  const svgOf = (chart, svg) => {
    const copy = svg.cloneNode(true);
    const [, , width, height] = svg.getAttribute("viewBox").split(" ").map(Number);
    const part = (name, attributes, text) => {
      const node = document.createElementNS(NAMESPACE, name);
      for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
      if (text !== undefined) node.textContent = text;
      return node;
    };
    copy.querySelectorAll(".cursor").forEach((node) => node.remove());
    copy.setAttribute("viewBox", `-10 -26 ${width + 20} ${height + 34}`);
    copy.setAttribute("width", width + 20);
    copy.setAttribute("height", height + 34);
    copy.dataset.theme = root.dataset.theme;
    copy.prepend(
      part("style", {}, document.getElementById("chart-style").textContent),
      part("rect", { class: "ground", x: -10, y: -26, width: "100%", height: "100%" }),
      part("text", { class: "head", x: 0, y: -9 }, chart.title),
    );
    return new XMLSerializer().serializeToString(copy);
  };
  const save = (name, url) => {
    const link = make("a");
    link.download = name;
    link.href = url;
    link.click();
  };
  const svgUrl = (text) => "data:image/svg+xml;charset=utf-8," + encodeURIComponent(text);
  const savePng = (name, text, svg) => {
    const [, , width, height] = svg.getAttribute("viewBox").split(" ").map(Number);
    const image = new Image();
    image.addEventListener("load", () => {
      const canvas = make("canvas");
      canvas.width = (width + 20) * PNG_SCALE;
      canvas.height = (height + 34) * PNG_SCALE;
      canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
      save(name, canvas.toDataURL("image/png"));
    });
    image.src = svgUrl(text);
  };
  const addFiles = (figure, chart, svg) => {
    const line = make("div", "data");
    const details = make("details");
    details.append(make("summary", "", "data as a table"));
    details.addEventListener("toggle", () => {
      if (details.open && details.childElementCount === 1) fillTable(details, chart);
    });
    line.append(details);
    const name = (chart.title || "chart").replace(/[^a-z0-9]+/gi, "-");
    const button = (label, act) => {
      const node = make("button", "save", label);
      node.type = "button";
      node.setAttribute("aria-label", `${label} of: ${chart.title}`);
      node.addEventListener("click", act);
      line.append(node);
    };
    button("CSV", () => {
      save(name + ".csv", "data:text/csv;charset=utf-8," + encodeURIComponent(csvOf(tableOf(chart))));
    });
    button("SVG", () => save(name + ".svg", svgUrl(svgOf(chart, svg))));
    button("PNG", () => savePng(name + ".png", svgOf(chart, svg), svg));
    figure.append(line);
  };

  // The values at the pointer, of the nearest x that has any.
  const addReading = (figure, chart, svg) => {
    const [left, right, top, bottom, from, to, kind] = svg.dataset.frame
      .split(" ")
      .map((value) => (Number.isNaN(Number(value)) ? value : Number(value)));
    const scaled = kind === "log" ? Math.log : (x) => x;
    const at = (x) => left + ((scaled(x) - scaled(from)) / (scaled(to) - scaled(from))) * (right - left);
    const places = chart.xs.map((x) => Math.min(right, Math.max(left, at(Math.max(x, kind === "log" ? from : x)))));
    const line = document.createElementNS(NAMESPACE, "path");
    line.setAttribute("class", "cursor");
    svg.append(line);
    const reading = make("div", "read");
    reading.setAttribute("aria-hidden", "true");
    figure.append(reading);
    const clear = () => {
      line.removeAttribute("d");
      reading.textContent = "";
    };
    svg.addEventListener("pointerleave", clear);
    svg.addEventListener("pointermove", (event) => {
      const box = svg.getBoundingClientRect();
      const x = ((event.clientX - box.left) / box.width) * svg.viewBox.baseVal.width;
      let best = -1;
      places.forEach((place, i) => {
        if (best < 0 || Math.abs(place - x) < Math.abs(places[best] - x)) best = i;
      });
      if (best < 0) return;
      line.setAttribute("d", `M${places[best]} ${top}V${bottom}`);
      const values = chart.series
        .filter((s) => s.data[best] !== null && s.data[best] !== undefined)
        .map((s) => `${s.name.split(": p50")[0]} ${number(s.data[best])}`);
      reading.textContent = `${chart.x.label} ${number(chart.xs[best])}: ${values.join(" · ")}`;
    });
  };

  for (const figure of document.querySelectorAll("figure[data-chart]")) {
    const chart = charts[Number(figure.dataset.chart)];
    const svg = figure.querySelector("svg");
    if (svg.dataset.frame) addReading(figure, chart, svg);
    addFiles(figure, chart, svg);
  }
  for (const button of document.querySelectorAll("button.copy")) {
    const text = button.parentElement.querySelector("pre");
    button.addEventListener("click", () => {
      // Where the clipboard is not allowed, as on a page of a file, the text is selected.
      const select = () => getSelection().selectAllChildren(text);
      const told = () => {
        button.textContent = "copied";
        setTimeout(() => (button.textContent = "copy"), 1500);
      };
      if (navigator.clipboard) navigator.clipboard.writeText(text.textContent).then(told, select);
      else select();
    });
  }

  const paint = (theme) => (root.dataset.theme = theme);
  paint(dark.matches ? "dark" : "light");
  dark.addEventListener("change", (event) => paint(event.matches ? "dark" : "light"));
  document.getElementById("theme").addEventListener("click", () => {
    paint(root.dataset.theme === "dark" ? "light" : "dark");
  });
})();
