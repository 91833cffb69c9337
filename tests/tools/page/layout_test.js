// The layout of the page (tools/page/page.js) under node: node layout_test.js. It prints what differs and exits 1.
"use strict";
const assert = require("node:assert");
const {page: layout, scalingOf} = require("../../../tools/page/page.js");

const curve = (name, step = [], value = []) => ({name, points: step.length, step, value, not_finite: []});
const run = more => ({name: "a", folder: "runs/a", state: "ended: done", call: "fsdp train", ranks: 2, settings: {"train.lr": "0.001"},
  metrics: {steps: 3, train_loss: 1.25, tokens_per_s: 100, memory: {predicted: {total: 4194304, by_category: {activation: 0}},
    ledger: {total: 5242880, by_category: {activation: 3145728}}, ledger_on_host: {total: 1048576, by_category: {}}},
    collectives: {all_gather: {calls: 30, bytes: 6291456}}, communication: {by_kind: {all_gather: {time_s: 0.006, exposed_s: 0.003}}},
    restarts: 0, ended: {last_durable_step: 0}},
  arguments: {}, progress: null, checkpoints: [], foreign: 0, step: null, no_step: "train with --trace", units: "units", no_units: "",
  curves: {loss: curve("training loss", [1, 2, 3], [1.75, 1.5, 1.25]), validation_loss: curve("validation loss", [3], [1.5]),
    learning_rate: curve("learning rate"), grad_norm: curve("gradient norm"), tokens_per_s: curve("tokens/s", [3], [103]),
    peak_memory_bytes: curve("peak", [3], [5242880])}, ...more});
const unfinished = more => run({name: "b", metrics: null, state: "running: step 3", settings: {"train.lr": "0.002"},
  progress: {step: 3, restarts: 1, durable_step: 2}, ...more});
const page = (runs, more) => layout({made_by: "Made by a test.", most_points: 1000, most_runs: 40, runs, sweeps: [], plans: [], left_out: [], ...more});
const has = (html, ...texts) => texts.forEach(text => assert(html.includes(text), `expected '${text}' in:\n${html}`));
const hasNot = (html, ...texts) => texts.forEach(text => assert(!html.includes(text), `unexpected '${text}' in:\n${html}`));
const numberCell = (tip, text) => `<td class="number" title="${tip}">${text}</td>`;

const speed = (name, ranks, speed_up, more) => ({case: name, status: "ran", ranks, median: {speed_up}, ...more});
const namesOf = (table, settings = {}) => scalingOf({table, settings}).series.map(each => each.name);

const cases = {
  "scaling: cases that differ in ranks alone are a series, with an ideal": () => {
    const {series, ideal} = scalingOf({settings: {}, table: [speed("strategy=a,ranks=2", 2, 1.8), speed("strategy=a,ranks=1", 1, 1),
      speed("strategy=b,ranks=4", 4, 3), speed("strategy=b,ranks=8", 8, 3, {oversubscribed: true})]});
    assert.deepEqual(series, [
      {name: "strategy=a", cases: ["strategy=a,ranks=1", "strategy=a,ranks=2"], ranks: [1, 2], speed_up: [1, 1.8]},
      {name: "strategy=b", cases: ["strategy=b,ranks=4"], ranks: [4], speed_up: [3]}]);  // without the one that had no cores
    assert.equal(ideal, 1);
  },
  "scaling: without a speed-up, tokens compared with those of the fewest ranks": () => {
    const tokens = (name, ranks, tokens_per_s) => ({case: name, ranks, median: {tokens_per_s}});
    const found = scalingOf({settings: {}, table: [tokens("F-B-2G1N", 2, 100), tokens("F-B-16G1N", 16, 500)]});
    assert.deepEqual([found.series[0].name, found.series[0].speed_up, found.ideal], ["F-B-2G1N to F-B-16G1N", [1, 5], 0.5]);
    for (const table of [[tokens("a", 2, 1)], [tokens("a", 2), tokens("b", 4)], []]) assert.deepEqual(namesOf(table), []);
  },
  "scaling: configurations say which cases are a series, not their names": () => {
    const table = [], settings = {};
    const add = (name, ranks, of) => table.push(speed(name, ranks, 1)) && (settings[name] = of);
    add("1-rank", 1, {"train.batch": "8", "train.rows": "1"});
    add("2-ranks", 2, {"train.batch": "16", "train.rows": "1"});
    add("1-rank-with-the-rows-of-2", 1, {"train.batch": "8", "train.rows": "2"});
    add("1-rank-with-the-rows-of-8", 1, {"train.batch": "8", "train.rows": "8"});
    add("batch=8,ranks=1", 1, {"train.batch": "8"});  // the batch does not follow the ranks
    add("batch=8,ranks=2", 2, {"train.batch": "8"});
    add("batch=16,ranks=1", 1, {"train.batch": "16"});
    add("4G1N", 4, {lr: "1"});
    add("4G2N", 4, {lr: "1"});  // no difference at all
    assert.deepEqual(namesOf(table, settings), ["1-rank to 2-ranks", "1-rank-with-the-rows-of-2", "1-rank-with-the-rows-of-8",
      "batch=8", "batch=16", "4G1N", "4G2N"]);
    add("4G2N", 4, {lr: "1"});  // of two tables, one behind the other: the name says nothing either
    assert.equal(scalingOf({table, settings}).series.at(-1).ranks.length, 2);
  },
  "a text is a text everywhere": () => {
    const bad = "</script><b title='x' \"y\">&\x1b";
    const html = page([run({name: bad, folder: bad, call: bad, settings: {[bad]: bad}, units: bad})], {left_out: [bad], made_by: bad});
    has(html, "&lt;/script&gt;&lt;b title='x' &quot;y&quot;&gt;&amp;?");
    hasNot(html, "<b", "</script>", "\"y\"");
  },
  "outcomes, also of a run that has not ended": () => {
    const html = page([run(), unfinished()]);
    has(html, "<th>state</th><td>ended: done</td><td>running: step 3</td>", numberCell("5242880 bytes", "5.00"),
      `<th>training loss</th>${numberCell(1.25, "1.2500").repeat(2)}`,
      `<th>tokens/s</th>${numberCell(100, 100)}${numberCell(103, 103)}`);  // of another stretch: no factor
    hasNot(html, "best validation loss");  // no run has one
    has(page([run(), run()]), "100 <small>x 1.00</small></td>");
  },
  "what failures cost, from progress.json where no metrics.json exists": () =>
    has(page([run(), unfinished()]), `<th>restarts</th>${numberCell(0, 0)}${numberCell(1, 1)}`,
      `<th>last durable step</th>${numberCell(0, 0)}${numberCell(2, 2)}`, "at steps</th><td>none</td><td>none</td>"),
  "settings that differ come first and are marked": () => {
    const html = page([run({settings: {x: "1", y: "1"}}), run({settings: {x: "2", y: "1"}})]);
    const row = '<tr class="differs"><th>x</th><td>1</td><td>2</td></tr>', section = html.slice(html.indexOf('<section id="settings">'));
    assert(section.indexOf(row) < section.indexOf("<details") && section.lastIndexOf(row) > section.indexOf("<details"));
    has(html, "<tr><th>y</th><td>1</td><td>1</td></tr>", "<pre>fsdp train\n</pre>");
    has(page([run(), run()]), "All settings are the same.");
    has(page([run({settings: {x: "a".repeat(130)}})]), "a".repeat(120) + "... <small>130 characters</small>");
  },
  "curves: their ends, steps without a number, fewer points": () => {
    const loss = {...curve("training loss", [1, 2, 3], [1.75, 0.5, 1.25]), points: 2000, not_finite: [4, 5, 6, 7, 8, 9, 10]};
    const html = page([run({curves: {...run().curves, loss}, foreign: 2})]);
    has(html, 'data-keys="loss validation_loss"', "training loss is not finite at step 4, 5, 6, 7, 8 and at 2 more.",
      `<th>training loss</th>${numberCell(2000, "2,000")}<td class="number" title="1.75">1.75 <small>step 1</small></td>` +
      '<td class="number" title="1.25">1.25 <small>step 3</small></td><td class="number" title="0.5">0.5 <small>step 2</small>',
      "At most 1000 points of a curve", "a: lines of metrics.jsonl that no run has written whole: 2");
    hasNot(page([run()]), "points of a curve are drawn");
    has(page([run({curves: Object.fromEntries(Object.keys(run().curves).map(key => [key, curve(key)]))})]), "No curves: nothing has been logged");
  },
  "memory by place, collectives a step, what a run lacks": () => {
    const html = page([run()]);
    has(html, "device, predicted</th><th class=\"number\">device, measured</th><th class=\"number\">host, predicted</th>",
      `<th>all at once</th>${numberCell("4194304 bytes", "4.00")}${numberCell("5242880 bytes", "5.00")}`,
      `<th>all_gather</th>${numberCell(30, 30)}${numberCell("6291456 bytes", "6.00")}${numberCell(10, "10.00")}` +
      `${numberCell(2, "2.000")}${numberCell(2, "2.000")}${numberCell(1, "1.000")}`,
      "No timeline: train with --trace.", "No curve over a step: train with --trace.");
    hasNot(html, "file, measured");
    has(page([unfinished({units: "", no_units: "x: unknown"})]), "So far rank 0 held 5.00 MiB at the most.",
      "No collectives: their sums are known", "No units: x: unknown");
  },
  "a step: the peak of its memory, its picture, its collectives": () => {
    const mib = 2 ** 20, ns = 1e8, phases = [["forward", 0, ns / 2], ["backward", ns / 2, ns], ["recompute", 5.5e7, 6.5e7]];
    const step = {number: 3, steps: 2, ns, phases, svg: "<svg></svg>", draw: "fsdp trace x", more_collectives: 4,
      collectives: [["blocks.0", "all_gather", 1, 64, 2e6, 1e6], ["", "all_reduce", 1, 64, 1, 1]],
      memory: {categories: ["activation", "<other>", "parameter shard"],
        moments: [[0, 0, 0, mib], [6e7, 3 * mib, 512, mib], [6e7, 0, 512, mib]]}};
    const html = page([run({step})]);
    has(html, ">Memory in step 3: at most 4.00 MiB<", "60 ms after the step began, in recompute. Then:",
      ">parameter shard 1.00 MiB<", ">activation 3.00 MiB<", ">&lt;other&gt; 0.00 MiB<", '<polygon points="118.0,171.5 ', "942.0,171.5",
      "The last of 2 steps", "4 more rows are left out.", `<th>no unit: all_reduce</th>${numberCell(1, 1)}`,
      `<th>blocks.0: all_gather</th>${numberCell(1, 1)}${numberCell("64 bytes", "0.00")}${numberCell(2, "2.000")}${numberCell(1, "1.000")}`);
    assert(html.indexOf(">parameter shard 1.00") < html.indexOf(">activation 3.00"));  // from the bottom
    has(page([run({step: {...step, memory: undefined, memory_left_out: true, svg: undefined, collectives: undefined}})]),
      "The curve over a step is left out", "The picture of step 3 is left out: the page would become too large. fsdp trace x draws it.",
      "The step's collectives are left out, too.");
    has(page([run({step: {...step, memory: null, collectives: []}})]), "the trace has no memory", "The step has no collectives.");
  },
  "a sweep: its table, its reasons, spreads and columns as it has written them": () => {
    const table = [
      {case: "a", status: "ran", ranks: 2, median: {tps: 100.25, hash: "<b>", none: null, told: 1234.5}, spread: {tps: 1.5},
        question: "Why?", heads: {told: "tokens/s"}, cells: {told: "1,234 ±2", none: "-"}},
      {case: "c", status: "failed", reason: "status 9: why\n  fits with less", ranks: 8, oversubscribed: true, median: {}, spread: {}}];
    const html = page([], {sweeps: [{folder: "s", table, settings: {}}]});
    has(html, '<th class="number">tps</th><th>hash</th><th class="number">none</th><th class="number">tokens/s</th>',
      '<td class="number" title="100.25">100.25 <small>± 1.5</small></td>', "<td>&lt;b&gt;</td>", numberCell(1234.5, "1,234 ±2"),
      '<td class="number">-</td>', '<tr class="differs"><th>c</th><td>failed</td>', "8 <small>oversubscribed</small></td>",
      ">c: failed: status 9: why\n  fits with less</p>", "<p>Why?</p>", "No scaling plot", "No run of the sweep has begun.");
    has(page([], {sweeps: [{folder: "s", table: [speed("x,ranks=1", 1, 1), speed("x,ranks=2", 2, 2)], settings: {}}]}), 'data-sweep="0"');
    has(page([run()], {left_out: ["x"]}), "1 runs are left out: a page has at most 40");
  },
  "a plan": () => {
    const row = {settings: "full_shard", nodes: 1, gpus: 8, step_s: 0.5, tokens_per_s_gpu: 1000, mfu: 0.5, exposed_s: 0, peak_bytes: 1048576,
      fits: false, bound: "compute", useful_share: null, days: null, cost: null, warnings: ["hot"]};
    const html = page([], {plans: [{file: "p.json", svg: "<svg></svg>", plan: {model: "a <model>", machine: "m", notes: ["n"], note: "",
      rows: [row, row], why: "+1 s", yaml: "hidden_size: 64"}}]});
    has(html, "a &lt;model&gt;, on m", "<svg>", "<pre>hidden_size: 64\n", numberCell(50, "50.0"), "1.00 <small>does not fit</small>", "+1 s");
    assert(html.split(">hot<").length === 2);  // each warning once
  },
};

let failed = 0;
for (const [name, test] of Object.entries(cases)) {
  try {
    test();
  } catch (error) {
    console.log(`${name}: ${error.message}`);
    failed = 1;
  }
}
process.exit(failed);
