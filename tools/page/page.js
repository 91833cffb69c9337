// Draws the curves of the page, from the JSON in it, with uPlot. Everything else of the page is there
// without a script. Not here: what the JSON is (page_data.h).
(() => {
  "use strict";
  const data = JSON.parse(document.getElementById("data").textContent);
  const colour = name => getComputedStyle(document.documentElement).getPropertyValue("--" + name).trim();

  const short = value => {
    if (value == null) return "-";
    const size = Math.abs(value);
    return size !== 0 && (size < 1e-3 || size >= 1e6) ? (+value.toPrecision(4)).toExponential()
      : String(+value.toPrecision(6));
  };

  // The nearest point of the curve under the pointer: each run has steps of its own.
  const nearest = (plot, series, index) => {
    const values = plot.data[series];
    for (let off = 0; off < values.length; ++off) {
      if (values[index - off] != null) return index - off;
      if (values[index + off] != null) return index + off;
    }
    return index;
  };

  const axis = more => ({
    stroke: colour("pale"), grid: {stroke: colour("line"), width: 1}, ticks: {stroke: colour("line")},
    values: (plot, splits) => splits.map(v => v == null ? "" : short(v)), ...more
  });

  const draw = (place, series, tables, x, options) => {
    const joined = uPlot.join(tables);
    const make = () => {
      place.querySelectorAll(".uplot").forEach(old => old.remove());
      return new uPlot({
        width: place.clientWidth, height: 240, scales: {x: {time: false}, ...options.scales},
        cursor: {dataIdx: nearest, ...options.cursor},
        axes: [axis({label: x, labelSize: 18, labelFont: "12px sans-serif", size: 32, ...options.axis}), axis({size: 66})],
        series: [{label: x, value: (plot, v) => short(v)}, ...series.map(each => ({
          label: each.label, stroke: colour(each.colour === "pale" ? "pale" : "run" + each.colour % 8), dash: each.dash, width: 1.5,
          spanGaps: true, points: {show: each.points, size: 5, fill: colour("paper")}, value: (plot, v) => short(v)
        }))]
      }, joined, place);
    };
    let plot = make();
    new ResizeObserver(() => plot.setSize({width: place.clientWidth, height: 240})).observe(place);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { plot = make(); });
    // What is drawn, for who reads the page with a program.
    place.dataset.points = JSON.stringify(tables.map(table => table[0].length));
    place.dataset.last = JSON.stringify(plot.data.slice(1).map(values => values.findLast(v => v != null) ?? null));
  };

  for (const place of document.querySelectorAll("[data-keys]")) {
    const series = [], tables = [];
    place.dataset.keys.split(" ").forEach((key, part) => data.runs.forEach((run, index) => {
      const curve = run.curves[key];
      if (curve.step.length === 0) return;
      tables.push([curve.step, curve.value]);
      const kind = key === "loss" ? "training" : key === "validation_loss" ? "validation" : place.querySelector("h3").textContent;
      series.push({label: data.runs.length > 1 ? run.name + (key.endsWith("loss") ? ", " + kind : "") : kind,
        colour: data.runs.length > 1 ? index : part, dash: part ? [6, 4] : undefined,
        points: curve.step.length < 60});
    }));
    draw(place, series, tables, "step", {cursor: {sync: {key: "step"}}});
  }

  for (const place of document.querySelectorAll("[data-sweep]")) {
    const sweep = data.sweeps[+place.dataset.sweep];
    const ranks = [...new Set(sweep.scaling.flatMap(series => series.ranks))].sort((a, b) => a - b);
    const series = sweep.scaling.map((each, index) => ({label: each.name, colour: index, points: true}));
    const tables = sweep.scaling.map(each => [each.ranks, each.speed_up]);
    series.push({label: "ideal", colour: "pale", dash: [2, 4], points: false});
    tables.push([ranks, ranks.map(n => n * sweep.ideal)]);
    draw(place, series, tables, "ranks", {axis: {splits: () => ranks}});
  }
})();
