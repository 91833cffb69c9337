// The page: its layout, as HTML made of the JSON in it, and its curves, drawn with uPlot. escaped() is the only place
// that escapes text. What a run lacks is one line. Not here: what the JSON is (page_data.h), the looks (page.css).
"use strict";

// A number in at most `most` digits, with an exponent where it is small or large.
const short = (value, most = 6) => {
  if (value == null) return "-";
  const size = Math.abs(value), written = +value.toPrecision(most);
  return size !== 0 && (size < 1e-3 || size >= 1e6) ? written.toExponential() : String(written);
};

const layout = (() => {
  const names = {"&": "&amp;", "<": "&lt;", ">": "&gt;", "\"": "&quot;"};
  const escaped = text => String(text).replace(/[&<>"]/g, c => names[c]).replace(/[\0-\x08\x0b-\x1f]/g, "?");
  const paragraph = text => `<p>${escaped(text)}</p>\n`;
  const note = text => `<p class="note">${escaped(text)}</p>\n`;  // small: what is missing, how to read
  const preformatted = text => `<pre>${escaped(text)}\n</pre>\n`;
  const details = (summary, html, open) =>
    `<details${open ? " open" : ""}><summary>${escaped(summary)}</summary>\n${html}</details>\n`;
  const plots = html => `<div class="plots">${html}</div>\n`;

  // ---- cells: {text, tip: what a pointer on it shows, beside: smaller, behind the text, number: to the right} ----
  const count = value => Math.round(value).toLocaleString("en-US");
  const text = (value, most = 300) => value.length <= most ? {text: value}
    : {text: Array.from(value).slice(0, most).join("") + "...", beside: `${count(value.length)} characters`};
  const number = (value, digits) => value == null ? {text: "-", number: true}
    : {text: digits ? value.toFixed(digits) : count(value), tip: String(value), number: true};
  const mib = bytes => bytes == null ? number(null)
    : {text: (bytes / 2 ** 20).toFixed(2), tip: `${bytes} bytes`, number: true};
  const ms = ns => number(ns / 1e6, 3);

  // Each row: [name, cells, whether it is marked].
  const table = (head, rows) => {
    const numbers = column => rows.every(([, cells]) => !cells[column]?.text || cells[column].number);
    const title = (name, i) => `<th${i > 0 && rows.length && numbers(i - 1) ? ' class="number"' : ""}>${escaped(name)}</th>`;
    const cell = ({text = "", tip, beside, number}) => `<td${number ? ' class="number"' : ""}` +
      `${tip ? ` title="${escaped(tip)}"` : ""}>${escaped(text)}${beside ? ` <small>${escaped(beside)}</small>` : ""}</td>`;
    const row = ([name, cells, marked]) =>
      `<tr${marked ? ' class="differs"' : ""}><th>${escaped(name)}</th>${cells.map(cell).join("")}</tr>\n`;
    return `<div class="wide"><table>\n<thead><tr>${head.map(title).join("")}</tr></thead>\n` +
      `<tbody>\n${rows.map(row).join("")}</tbody></table></div>\n`;
  };

  // ---- columns for several runs ----
  const follow = (json, path) => path.split("/").slice(1).reduce((part, key) => part?.[key], json);
  const numberAt = (json, path) => {
    const found = follow(json, path);
    return typeof found === "number" ? found : null;
  };
  const last = (run, curve) => run.curves[curve].value.at(-1) ?? null;
  // Of metrics.json; of a run that has not ended the last value of a curve, or of progress.json.
  const of = (path, curve, progress) => run => numberAt(run.metrics, path) ??
    (run.metrics ? null : curve ? last(run, curve) : progress ? numberAt(run.progress, progress) : null);
  const cost = path => of(path, null, path);
  const setting = key => run => run.settings[key];
  const msPerStep = path => run => {
    const seconds = numberAt(run.metrics, path), steps = numberAt(run.metrics, "/steps");
    return seconds != null && steps > 0 ? 1000 * seconds / steps : null;
  };
  // Each row: [name, value of a run, digits or "text" or "MiB", whether the other runs that have ended get their factor
  // to the first]. A row for which no run has a value is left out.
  const comparison = (runs, rows) => table(["", ...runs.map(run => run.name)], rows.flatMap(([name, value, kind, factor]) => {
    const values = runs.map(value);
    if (kind === "text") return values.some(each => each) ? [[name, values.map(each => text(String(each ?? "")))]] : [];
    if (!values.some(each => kind === "MiB" ? each > 0 : each != null)) return [];
    const cells = values.map(each => kind === "MiB" ? mib(each) : number(each, kind));
    if ((factor || kind === "MiB") && runs[0].metrics && values[0] > 0)
      for (let i = 1; i < runs.length; ++i)
        if (runs[i].metrics && values[i] != null) cells[i].beside = `x ${(values[i] / values[0]).toFixed(2)}`;
    return [[name, cells]];
  }));
  const outcome = [
    ["state", run => run.state, "text"],
    ["folder", run => run.folder, "text"],
    ["model", run => run.metrics?.model ?? run.arguments?.model, "text"],
    ["parameters", of("/parameters"), 0],
    ["strategy", setting("fsdp.strategy"), "text"],
    ["dtype", setting("train.dtype"), "text"],
    ["ranks", run => run.ranks || null, 0],
    ["steps", of("/steps", null, "/step"), 0],
    ["training loss", of("/train_loss", "loss"), 4],
    ["validation loss", of("/validation_loss", "validation_loss"), 4],
    ["best validation loss", of("/best_validation_loss"), 4],
    ["tokens/s", of("/tokens_per_s", "tokens_per_s"), 0, true],
    ["tokens/s per rank", of("/tokens_per_s_per_rank"), 0, true],
    ["seconds, evaluations included", of("/wall_time_s", null, "/wall_time_s"), 1, true],
    ["peak memory of rank 0 (MiB)", of("/memory/ledger/total", "peak_memory_bytes"), "MiB"],
    ["on its host (MiB)", of("/memory/ledger_on_host/total"), "MiB"],
    ["in its file (MiB)", of("/memory/ledger_in_file/total"), "MiB"],
    ["communication not hidden, with evaluations (ms a step)", msPerStep("/communication/exposed_s"), 3, true],
    ["skipped steps", of("/skipped_steps"), 0],
    ["hash of the weights", run => run.metrics?.weights_hash, "text"]];
  const costs = [
    ["restarts", cost("/restarts"), 0],
    ["work done and lost (s)", cost("/lost_s"), 1],
    ["until failures were noticed (s)", cost("/detection_s"), 1],
    ["pauses and starts in vain (s)", cost("/pause_s"), 1],
    ["restarts, to their first step (s)", cost("/restart_s"), 1],
    ["share of time in steps that count", of("/effective_share"), 3],
    ["rollbacks", of("/rollbacks"), 0],
    ["checkpoints: the loop stood still (s)", cost("/save_stall_s"), 2],
    ["checkpoints: written for (s)", cost("/save_write_s"), 2],
    ["stall of saves, of their writing", of("/save_stall_share"), 3],
    ["last durable step", of("/ended/last_durable_step", null, "/durable_step"), 0],
    ["step of the best checkpoint", of("/best_step"), 0],
    ["continued from step", of("/resumed_from"), 0],
    ["a checkpoint every (steps)", setting("checkpoint.every"), "text"],
    ["complete checkpoints now, at steps", run => run.checkpoints.join(", ") || "none", "text"]];

  const settings = runs => {
    const keys = [...new Set(runs.flatMap(run => Object.keys(run.settings)))].sort();
    const head = ["", ...runs.map(run => run.name)];
    const rows = keys.map(key => {
      const values = runs.map(run => run.settings[key] ?? "");
      return [key, values.map(value => text(value, 120)), new Set(values).size > 1];
    });
    const different = rows.filter(([, , differs]) => differs);
    return runs.filter(run => run.call).map(run => preformatted(run.call)).join("") +
      (runs.length < 2 ? "" : different.length ? table(head, different) : note("All settings are the same.")) +
      details(`all ${keys.length} settings`, table(head, rows), false);
  };

  // ---- curves: their places, and their ends for whoever wants numbers ----
  const figures = [["loss", ["loss", "validation_loss"]], ["learning rate", ["learning_rate"]],
    ["gradient norm", ["grad_norm"]], ["tokens/s", ["tokens_per_s"]]];
  const curves = data => {
    let places = "", notes = "", fewer = false;
    const ends = [];
    for (const [title, keys] of figures) {
      const drawn = keys.flatMap(key => data.runs.map(run => ({run, ...run.curves[key]})));
      if (drawn.some(each => each.points)) places += `<div class="plot" data-keys="${keys.join(" ")}"><h3>${title}</h3></div>\n`;
      for (const {run, name, step, value, points, not_finite} of drawn) {
        const whose = data.runs.length === 1 ? name : `${name}, ${run.name}`;
        const cell = i => ({text: short(value[i], 5), tip: String(value[i]), beside: `step ${step[i]}`, number: true});
        const most = better => value.reduce((found, each, i) => better(each, value[found]) ? i : found, 0);
        if (points) ends.push([whose, [number(points, 0), cell(0), cell(value.length - 1), cell(most((a, b) => a < b)), cell(most((a, b) => a > b))]]);
        fewer ||= points > step.length;
        const more = not_finite.length > 5 ? ` and at ${not_finite.length - 5} more` : "";
        if (not_finite.length) notes += note(`${whose} is not finite at step ${not_finite.slice(0, 5).join(", ")}${more}.`);
      }
    }
    for (const run of data.runs)
      if (run.foreign) notes += note(`${run.name}: lines of metrics.jsonl that no run has written whole: ${run.foreign}`);
    if (!places) return note("No curves: nothing has been logged yet.") + notes;
    if (fewer) notes += note(`At most ${data.most_points} points of a curve are drawn, with the lowest and the highest ` +
      "one of each stretch; fsdp report --tensorboard has all.");
    return plots(places) + notes +
      details("ends and extremes", table(["", "points", "first", "last", "lowest", "highest"], ends), data.runs.length === 1);
  };

  // ---- the memory of a step as areas, one on the other ----
  // From the bottom: what is there all the time comes first. Others, in the order of their names, follow.
  const colours = {"parameter shard": "#7fb7e6", "optimizer state": "#b9a5e0", "gradient": "#86c99a",
    "unsharded parameter": "#f2b66d", "communication": "#d6c566", "transport staging": "#86cfcf",
    "key-value cache": "#e3a3cd", "workspace": "#a8b1bb", "activation": "#e79a9a"};
  const memoryPicture = ({number, ns, phases, memory: {categories, moments}}) => {
    const width = 960, left = 118, right = 18, top = 44, height = 170;
    const known = Object.keys(colours), place = name => known.includes(name) ? known.indexOf(name) : known.length;
    const order = categories.map((name, i) => i).sort((a, b) => place(categories[a]) - place(categories[b]) || a - b);
    const total = ([, ...bytes]) => bytes.reduce((sum, each) => sum + each, 0);
    const peak = moments.reduce((most, each) => total(each) > total(most) ? each : most);
    const x = at => left + (width - left - right) * at / ns;
    const y = bytes => top + height - height * bytes / total(peak);
    const size = bytes => mib(bytes).text + " MiB";
    const label = (x, y, what, more = "") => `<text x="${x}" y="${y}"${more}>${escaped(what)}</text>\n`;
    // As steps: a value holds until the next moment.
    const line = below => moments.flatMap((moment, i) => {
      const sum = order.slice(0, below).reduce((bytes, each) => bytes + moment[1 + each], 0);
      return [moment[0], moments[i + 1]?.[0] ?? ns].map(at => `${x(at).toFixed(1)},${y(sum).toFixed(1)}`);
    }).filter((point, i, all) => point !== all[i - 1]);
    let out = label(12, 26, `Memory in step ${number}: at most ${size(total(peak))}`, ' class="title"');
    const decade = 10 ** Math.floor(Math.log10(ns / 8e6));
    const between = [1, 2, 5, 10].map(factor => factor * decade).find(each => ns / 1e6 / each <= 10);
    for (let i = 0; i * between <= ns / 1e6; ++i) {
      const at = x(i * between * 1e6).toFixed(1), unit = (i + 1) * between > ns / 1e6 ? " ms" : "";
      out += `<line x1="${at}" x2="${at}" y1="${top}" y2="${top + height}"/>\n` +
        label(at, top + height + 14, +(i * between).toPrecision(6) + unit, ' text-anchor="middle"');
    }
    order.forEach((each, i) => {
      out += `<polygon points="${[...line(i + 1), ...line(i).reverse()].join(" ")}" ` +
        `fill="${colours[categories[each]] ?? "#c4cad1"}"><title>${escaped(categories[each])}</title></polygon>\n`;
    });
    // The innermost phase.
    const [phase] = phases.filter(([, begin, end]) => begin <= peak[0] && peak[0] < end).sort((a, b) => a[2] - a[1] - b[2] + b[1]);
    out += `<line class="peak" x1="${x(peak[0]).toFixed(1)}" x2="${x(peak[0]).toFixed(1)}" y1="${top - 6}" y2="${top + height}"/>\n` +
      label(12, top + 6, size(total(peak))) + label(12, top + height, "0") +
      label(12, top + height + 40, `Dashed: the most, ${+(peak[0] / 1e6).toPrecision(3)} ms after the step began` +
        `${phase ? ", in " + phase[0] : ""}. Then:`);
    let at = 12, row = top + height + 60;
    for (const each of order) {
      const what = `${categories[each]} ${size(peak[1 + each])}`, room = 30 + 6.2 * what.length;
      if (at + room > width) at = 12, row += 18;
      out += `<rect x="${at}" y="${row - 10}" width="12" height="12" fill="${colours[categories[each]] ?? "#c4cad1"}"/>\n` + label(at + 17, row, what);
      at += room;
    }
    return `<figure class="wide"><svg class="memory" width="${width}" height="${row + 14}" viewBox="0 0 ${width} ${row + 14}">` +
      `<rect class="card" x="0.5" y="0.5" width="${width - 1}" height="${row + 13}" rx="6"/>\n${out}</svg></figure>\n`;
  };

  // ---- parts about one run ----
  // Two columns for each place that holds anything; a row for each category that does.
  const peaks = memory => {
    const used = [["device", "predicted", "ledger"], ["host", "predicted_on_host", "ledger_on_host"],
      ["file", "predicted_in_file", "ledger_in_file"]].filter(([, ...keys]) => keys.some(key => memory[key]?.total > 0));
    const keys = used.flatMap(([, ...keys]) => keys), categories = Object.keys(memory[used[0]?.[2]]?.by_category ?? {});
    const row = (name, of) => {
      const bytes = keys.map(key => memory[key] && of(memory[key]));
      return bytes.some(each => each > 0) ? [[name, bytes.map(mib)]] : [];
    };
    return table(["peak of rank 0 (MiB)", ...used.flatMap(([name]) => [`${name}, predicted`, `${name}, measured`])],
      [...categories.flatMap(name => row(name, each => each.by_category?.[name])), ...row("all at once", each => each.total)]);
  };
  const memory = run => {
    const picture = !run.step ? note(`No curve over a step: ${run.no_step}.`)
      : run.step.memory ? memoryPicture(run.step)
      : note(run.step.memory_left_out ? "The curve over a step is left out: the page would become too large."
        : "No curve over a step: the trace has no memory.");
    if (run.metrics?.memory) return picture + peaks(run.metrics.memory);
    const far = last(run, "peak_memory_bytes");
    return picture + note(far == null ? "No peaks: the run has logged no step."
      : `Peaks by category are known when the run has ended. So far rank 0 held ${mib(far).text} MiB at the most.`);
  };
  const timeline = run => {
    if (!run.step) return note(`No timeline: ${run.no_step}.`);
    const {number: step, steps, svg, collectives, more_collectives: more, draw} = run.step;
    return (svg ? `<figure class="wide">${svg}</figure>\n`
      : note(`The picture of step ${step} is left out: the page would become too large. ${draw} draws it.`)) +
      (steps > 1 ? note(`The last of ${steps} steps; fsdp trace draws the others.`) : "") +
      (!collectives ? note("The step's collectives are left out, too.")
        : !collectives.length ? note("The step has no collectives.")
        : table(["unit, collective", "calls", "MiB", "ms", "not hidden (ms)"], collectives.map(([unit, kind, calls, bytes, time, exposed]) =>
          [`${unit || "no unit"}: ${kind}`, [number(calls, 0), mib(bytes), ms(time), ms(exposed)]]))) +
      (more ? note(`${more} more rows are left out.`) : "");
  };
  const units = run => run.units ? preformatted(run.units) + (run.more_units ? note("More rows are left out: fsdp explain prints them.") : "")
    : note(`No units: ${run.no_units}`);
  const collectives = run => {
    const kinds = run.metrics?.collectives, steps = run.metrics?.steps;
    if (!kinds) return note("No collectives: their sums are known when the run has ended.");
    const perStep = (value, scale) => value == null || !(steps > 0) ? null : value * scale / steps;
    const rows = Object.entries(kinds).map(([kind, {calls, bytes}]) => {
      const seconds = run.metrics.communication?.by_kind?.[kind];
      return [kind, [number(calls, 0), mib(bytes), number(perStep(calls, 1), 2), number(perStep(bytes, 2 ** -20), 3),
        number(perStep(seconds?.time_s, 1000), 3), number(perStep(seconds?.exposed_s, 1000), 3)]];
    });
    return rows.length ? table(["rank 0, evaluations included", "calls", "MiB", "calls a step", "MiB a step", "ms a step",
      "not hidden (ms a step)"], rows) : note("The run had no collectives.");
  };
  const each = (runs, html) => runs.length === 1 ? html(runs[0]) : runs.map((run, i) => details(run.name, html(run), i < 2)).join("");

  // ---- sweeps and plans ----
  const ranksOf = name => name.split(",").filter(part => !part.startsWith("ranks=")).join(",") || "all cases";
  // What the cases of a series have in common: all settings but those that may have to follow the ranks, all settings,
  // the name. The first of these that leaves no two cases with the same ranks counts.
  const kinds = (name, settings) => {
    if (!settings) return [ranksOf(name) === name ? name.replace(/\d+/g, "#") : ranksOf(name), name, name];
    const {"train.batch": batch, "fsdp.shard_size": size, ...rest} = settings;
    return [JSON.stringify(rest), JSON.stringify(settings), name];
  };
  const series = (cases, kind) => [...new Set(cases.map(each => each.kinds[kind]))].flatMap(common => {
    const group = cases.filter(each => each.kinds[kind] === common);
    if (new Set(group.map(each => each.ranks)).size < group.length && kind < 2) return series(group, kind + 1);
    const points = [...group].sort((a, b) => a.ranks - b.ranks), first = points[0].name, end = points.at(-1).name;
    return [{name: ranksOf(first) === ranksOf(end) ? ranksOf(first) : `${first} to ${end}`, cases: points.map(each => each.name),
      ranks: points.map(each => each.ranks), speed_up: points.map(each => each.speed)}];
  });
  // The column of the sweep; without it the tokens of a second, compared with those of the fewest ranks. Rows with more
  // ranks than cores are left out. The baseline of the ideal is the case with a speed-up of 1.
  const scalingOf = ({table: rows, settings}) => {
    const speeds = column => rows.filter(row => row.ranks > 0 && row.median?.[column] > 0 && row.oversubscribed !== true)
      .map(row => ({name: row.case, ranks: row.ranks, speed: row.median[column], kinds: kinds(row.case, settings[row.case])}));
    let cases = speeds("speed_up");
    if (!cases.length) {
      cases = speeds("tokens_per_s");
      const least = cases.reduce((found, each) => each.ranks < found.ranks ? each : found, cases[0])?.speed;
      for (const each of cases) each.speed /= least;
    }
    const found = series(cases, 0), away = each => Math.abs(each.speed - 1);
    if (!found.some(each => each.ranks.length > 1)) return {series: [], ideal: 1};
    return {series: found, ideal: 1 / cases.reduce((near, each) => away(each) < away(near) ? each : near).ranks};
  };
  // With the text of the sweep's own tables where the row has it.
  const value = (row, column) => {
    const median = row.median?.[column] ?? null, spread = row.spread?.[column], cell = row.cells?.[column];
    if (median == null) return cell == null ? {} : {...number(null), text: cell};
    if (typeof median !== "number") return text(cell ?? (typeof median === "string" ? median : JSON.stringify(median)));
    if (cell != null) return {...number(median, 0), text: cell};
    return {...number(median, 0), ...Number.isInteger(median) ? {} : {text: String(+median.toPrecision(5))},
      ...spread > 0 ? {beside: `± ${+spread.toPrecision(2)}`} : {}};
  };
  const sweep = ({folder, table: rows, ...more}, index) => {
    const columns = new Map(rows.flatMap(row => Object.keys(row.median ?? {}).map(key => {
      const head = row.heads?.[key] ?? key;
      return [JSON.stringify([key, head]), [key, head]];
    })));
    const found = [...columns.values()], question = rows.find(row => row.question)?.question;
    const reason = row => row.reason ? note(`${row.case}: ${row.status}: ${row.reason}`) : "";
    return paragraph(folder) + (question ? paragraph(question) : "") +
      table(["case", "status", "ranks", ...found.map(([, head]) => head)], rows.map(row => [row.case,
        [text(String(row.status)), {...number(row.ranks, 0), ...row.oversubscribed ? {beside: "oversubscribed"} : {}},
          ...found.map(([key]) => value(row, key))], row.status === "failed"])) +
      rows.map(reason).join("") +
      note("A number is the median of a case's runs; behind ± stands how far the farthest run is from the median.") +
      (scalingOf({table: rows, ...more}).series.length ? plots(`<div class="plot" data-sweep="${index}"><h3>speed-up over ranks</h3></div>`)
        : note("No scaling plot: no two cases that differ in their number of ranks alone have a speed-up or tokens/s."));
  };
  const planRow = row => [row.settings, [number(row.nodes, 0), number(row.gpus, 0), number(row.step_s, 3),
    number(row.tokens_per_s_gpu, 0), number(row.mfu && 100 * row.mfu, 1), number(row.exposed_s, 3),
    {...mib(row.peak_bytes), ...row.fits === false ? {beside: "does not fit"} : {}}, text(row.bound),
    number(row.useful_share && 100 * row.useful_share, 1), number(row.days, 1), number(row.cost, 0)], row.fits === false];
  const plan = ({file, plan, svg}) => paragraph(file) + paragraph(`${plan.model}, on ${plan.machine}`) +
    [...plan.notes, plan.note].filter(each => each).map(note).join("") +
    table(["settings", "nodes", "GPUs", "step (s)", "tokens/s/GPU", "MFU (%)", "waits (s)", "memory (MiB)", "bound by",
      "useful time (%)", "days", "cost"], plan.rows.map(planRow)) +
    (plan.why ? note(`A step of the second takes, compared with the first, ${plan.why}.`) : "") +
    [...new Set(plan.rows.flatMap(row => row.warnings))].map(note).join("") + svg +
    (plan.yaml ? details("configuration of the first", preformatted(plan.yaml), false) : "");

  const page = data => {
    const runs = data.runs, sections = [];
    const add = (id, title, html) => sections.push({id, title, html});
    if (data.plans.length) add("plan", "Plan", data.plans.map(plan).join(""));
    if (data.sweeps.length) add("sweep", "Sweep", data.sweeps.map(sweep).join(""));
    if (runs.length) {
      add("outcome", "Outcome", comparison(runs, outcome));
      add("curves", "Curves", curves(data));
      add("memory", "Memory", each(runs, memory));
      add("timeline", "Timeline of a step", each(runs, timeline));
      add("units", "Units", each(runs, units));
      add("collectives", "Collectives", each(runs, collectives));
      add("costs", "Lost time, restarts, checkpoints", comparison(runs, costs));
      add("settings", "Configuration", settings(runs));
    }
    return `<nav>${sections.map(({id, title}) => `<a href="#${id}">${title}</a>\n`).join("")}</nav>\n` +
      sections.map(({id, title, html}) => `<section id="${id}"><h2>${title}</h2>\n${html}</section>\n`).join("") +
      (!runs.length && data.sweeps.length ? note("No run of the sweep has begun.") : "") +
      (data.left_out.length ? details(`${data.left_out.length} runs are left out: a page has at most ${data.most_runs}`,
        data.left_out.map(note).join(""), false) : "") + note(data.made_by);
  };
  return {page, scalingOf};
})();

const drawCurves = data => {
  const colour = name => getComputedStyle(document.documentElement).getPropertyValue("--" + name).trim();

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
    const scaling = layout.scalingOf(data.sweeps[+place.dataset.sweep]);
    const ranks = [...new Set(scaling.series.flatMap(each => each.ranks))].sort((a, b) => a - b);
    const series = scaling.series.map((each, index) => ({label: each.name, colour: index, points: true}));
    const tables = scaling.series.map(each => [each.ranks, each.speed_up]);
    series.push({label: "ideal", colour: "pale", dash: [2, 4], points: false});
    tables.push([ranks, ranks.map(n => n * scaling.ideal)]);
    draw(place, series, tables, "ranks", {axis: {splits: () => ranks}});
  }
};

if (typeof document === "undefined") {
  module.exports = layout;  // in a test
} else {
  const main = document.querySelector("main");
  try {
    const data = JSON.parse(document.getElementById("data").textContent);
    main.insertAdjacentHTML("beforeend", layout.page(data));
    drawCurves(data);
  } catch (error) {
    main.append(`This page could not be drawn: ${error}. Its data are in the file, as JSON.`);
  }
}
