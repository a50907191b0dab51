"use strict";
/* The explorer: unpacks the nodes after the first paint, then searches, lists and shows them.
   Users' data (ids, class names) enters the page through textContent alone. */
(() => {
  const PAGE = 20; // rows of the list at a time
  const FEW = 6; // labels of a node shown at first
  const STEPS = 65535;
  const PART_NAMES = {
    own: "own",
    similar: "similar nodes",
    linked: "linked nodes",
    two_hop: "links of links",
    context: "nodes in a similar context",
    propagated: "known labels, by links",
    propagated_context: "known labels, by context",
    regression: "regression on features",
  };
  // A colour (in page.css) and a shape for each part, the same in all methods.
  const PARTS = Object.keys(PART_NAMES);
  const SHAPES = { similar: "●", linked: "■", two_hop: "◆", context: "▲" };
  const colourOf = (part) => "part" + (PARTS.includes(part) ? PARTS.indexOf(part) : 7);
  const SMALL = 0.05; // parts of less evidence are shown together
  const $ = (id) => document.getElementById(id);
  const number = (value, digits = 3) => (Number.isFinite(value) ? value.toFixed(digits) : "∞");
  const percent = (share) => (share && share < 0.001 ? "< 0.1" : (100 * share).toFixed(1)) + " %";
  const many = (count, one, more = one + "s") =>
    `${count.toLocaleString("en")} ${count === 1 ? one : more}`;

  let nodes; // all that was packed
  let found = []; // places of the nodes that pass the filters
  let first = 0; // the first of them on screen
  let current = -1; // the node shown

  // ---- Elements ----

  function make(tag, options = {}, ...children) {
    const element = document.createElement(tag);
    for (const [name, value] of Object.entries(options)) {
      if (name === "class") element.className = value;
      else if (name === "text") element.textContent = value;
      else element.setAttribute(name, value);
    }
    element.append(...children);
    return element;
  }

  function draw(tag, attributes, text) {
    const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
    for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
    if (text !== undefined) element.textContent = text;
    return element;
  }

  const partName = (part) => PART_NAMES[part] ?? part.replaceAll("_", " ");

  const hash = (id) => "#node=" + encodeURIComponent(id);

  /* A name next to other text, isolated so that its writing direction does not change theirs. */
  const name = (text) => make("bdi", { text });

  function short(text, most = 24) {
    return text.length > most ? text.slice(0, most - 1) + "…" : text;
  }

  function link(place) {
    const id = nodes.ids[place];
    if (place >= nodes.carried) return make("span", { text: short(id), title: id });
    return make("a", { href: hash(id), text: short(id), title: id });
  }

  // ---- Unpacking ----

  async function unpack(text) {
    const packed = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
    const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
    const whole = await new Response(stream).arrayBuffer();
    const length = new DataView(whole).getUint32(0, true);
    const data = JSON.parse(new TextDecoder().decode(new Uint8Array(whole, 8, length)));
    const kinds = { Uint8Array, Uint16Array, Uint32Array, Float64Array };
    for (const [name, [kind, offset, count]] of Object.entries(data.arrays)) {
      data[name] = new kinds[kind](whole, 8 + length + offset, count);
    }
    data.width = Math.ceil(data.classes.length / 8);
    data.place = new Map(data.ids.map((id, place) => [id, place]));
    data.size = Uint16Array.from({ length: data.ids.length }, (_, place) => {
      let count = 0;
      for (let byte = 0; byte < data.width; byte++) {
        for (let bits = data.sets[place * data.width + byte]; bits; bits &= bits - 1) count++;
      }
      return count;
    });
    data.labelled = data.truth.some((code) => code > 0);
    return data;
  }

  const holds = (place, label) =>
    (nodes.sets[place * nodes.width + (label >> 3)] >> (label & 7)) & 1;

  const labelsOf = (place) =>
    nodes.classes.map((_, label) => label).filter((label) => holds(place, label));

  const truthOf = (place) => nodes.truth[place] - 1;

  function scoreOf(name, place, label) {
    const [low, high] = nodes.ranges[name];
    const step = nodes["score " + name][place * nodes.classes.length + label];
    return low + (step / STEPS) * (high - low);
  }

  function limitOf(place, label) {
    const wide = nodes.byClass ? nodes.classes.length : 1;
    const row = nodes.byNode ? place : nodes.group ? nodes.group[place] : 0;
    return nodes.limits[row * wide + (nodes.byClass ? label : 0)];
  }

  // ---- Finding ----

  function fill(select, any, entries) {
    select.replaceChildren(
      new Option(any, ""),
      ...entries.map(([value, text]) => new Option(text, value)),
    );
  }

  function prepare() {
    const { classes, roles } = nodes;
    const sizes = [...new Set(nodes.size.slice(0, nodes.carried))].sort((a, b) => a - b);
    fill(
      $("by-size"),
      "any number",
      sizes.map((size) => [size, size === 0 ? "none" : String(size)]),
    );
    const named = classes.map((name, label) => [label, short(name, 40)]);
    fill($("by-top"), "any", named);
    fill($("by-truth"), "any", named);
    fill($("by-hit"), "any", [
      ["hit", "in the set"],
      ["miss", "missed"],
      ["unknown", "not known"],
    ]);
    const present = new Set(nodes.role);
    fill(
      $("by-role"),
      "any",
      roles.map((role, place) => [place, role]).filter(([place]) => present.has(place)),
    );
    const orders = [
      ["large", "largest sets first"],
      ["small", "smallest sets first"],
      ["unsure", "least sure first"],
    ];
    if (nodes.degree) orders.push(["links", "most links first"]);
    fill($("order"), "as in the graph", orders);
    $("by-truth").parentElement.hidden = $("by-hit").parentElement.hidden = !nodes.labelled;
    const predicted = roles.indexOf("predicted");
    if (present.has(predicted)) $("by-role").value = String(predicted);
  }

  const outcome = (place) => {
    const truth = truthOf(place);
    return truth < 0 ? "unknown" : holds(place, truth) ? "hit" : "miss";
  };

  function search() {
    const text = $("find").value.trim().toLowerCase();
    const value = (id) => ($(id).value === "" ? null : Number($(id).value));
    const [size, top, truth, role] = ["by-size", "by-top", "by-truth", "by-role"].map(value);
    const hit = $("by-hit").value;
    found = [];
    for (let place = 0; place < nodes.carried; place++) {
      if (size !== null && nodes.size[place] !== size) continue;
      if (top !== null && nodes.top[place] !== top) continue;
      if (truth !== null && truthOf(place) !== truth) continue;
      if (role !== null && nodes.role[place] !== role) continue;
      if (hit && outcome(place) !== hit) continue;
      if (text && !nodes.ids[place].toLowerCase().includes(text)) continue;
      found.push(place);
    }
    const keys = {
      large: (place) => -nodes.size[place],
      small: (place) => nodes.size[place],
      unsure: (place) => nodes.sure[place],
      links: (place) => -nodes.degree[place],
    };
    const key = keys[$("order").value];
    if (key) found.sort((one, two) => key(one) - key(two) || one - two);
    first = 0;
    list();
  }

  /* The set of a node, or the beginning of it, for a cell. */
  function setCells(place) {
    const labels = labelsOf(place);
    if (!labels.length) return ["empty"];
    const names = labels.slice(0, 4).map((label) => name(short(nodes.classes[label], 20)));
    const more = labels.length > 4 ? [` and ${labels.length - 4} more`] : [];
    return [...names.flatMap((one, place) => (place ? [", ", one] : [one])), ...more];
  }

  function list() {
    const rows = found.slice(first, first + PAGE).map((place) => {
      const truth = truthOf(place);
      const sign = { hit: "✓ ", miss: "✗ ", unknown: "" }[outcome(place)];
      const text = truth < 0 ? ["not known"] : [sign, name(short(nodes.classes[truth], 20))];
      const row = make(
        "tr",
        {},
        make("td", {}, link(place)),
        make("td", {}, ...setCells(place)),
        make("td", { class: outcome(place) }, ...text),
        make("td", { text: nodes.roles[nodes.role[place]] }),
      );
      if (place === current) row.setAttribute("aria-current", "true");
      row.addEventListener("click", (event) => {
        if (!event.target.closest("a")) location.hash = hash(nodes.ids[place]);
      });
      return row;
    });
    $("rows").replaceChildren(...rows);
    $("found").textContent =
      `${found.length.toLocaleString("en")} of ${many(nodes.carried, "node")} found.`;
    const pages = Math.max(1, Math.ceil(found.length / PAGE));
    $("page").textContent = `page ${Math.floor(first / PAGE) + 1} of ${pages}`;
    $("before").disabled = first === 0;
    $("after").disabled = first + PAGE >= found.length;
  }

  // ---- One node ----

  function show(place) {
    current = place;
    const id = nodes.ids[place];
    const heading = make(
      "h3",
      { id: "node-heading", tabindex: "-1" },
      "Node ",
      name(id),
    );
    $("node").replaceChildren(
      heading,
      about(place),
      setOf(place),
      ...reasons(place),
      ...neighbourhood(place),
    );
    list();
    return heading;
  }

  function about(place) {
    const truth = truthOf(place);
    const verdict = {
      hit: "in the set",
      miss: "not in the set",
      unknown: "not known",
    }[outcome(place)];
    const facts = [
      ["Role", nodes.roles[nodes.role[place]]],
      [
        "Most likely label",
        name(nodes.classes[nodes.top[place]]),
        ` (${percent(nodes.sure[place] / STEPS)})`,
      ],
      ["True label", ...(truth < 0 ? [verdict] : [name(nodes.classes[truth]), `: ${verdict}`])],
    ];
    if (nodes.degree) facts.push(["Links", nodes.degree[place].toLocaleString("en")]);
    if (nodes.groups) facts.push(["Group", nodes.groups[nodes.group[place]]]);
    const list = make("dl", { class: "about" });
    for (const [term, ...values] of facts) {
      list.append(make("div", {}, make("dt", { text: term }), make("dd", {}, ...values)));
    }
    return list;
  }

  function setOf(place) {
    const labels = labelsOf(place);
    if (!labels.length) {
      return make("p", {
        class: "set",
        text: "Its set is empty: no label fits well enough. Inspect this node by hand.",
      });
    }
    const chips = labels.map((label) => make("li", { text: nodes.classes[label] }));
    return make(
      "div",
      { class: "set" },
      make("p", {
        text:
          labels.length === 1
            ? "Its set contains one label:"
            : `Its set contains ${labels.length} labels:`,
      }),
      make("ul", { class: "chips" }, ...chips),
    );
  }

  function reasons(place) {
    const order = nodes.classes.map((_, label) => label);
    order.sort(
      (one, two) => scoreOf("mixed", place, one) - scoreOf("mixed", place, two) || one - two,
    );
    const scale = scales(place, order);
    const cards = make("ul", { class: "labels" });
    const shown = Math.max(FEW, Math.min(labelsOf(place).length + 2, 12));
    cards.append(...order.slice(0, shown).map((label) => card(place, label, scale)));
    const why =
      nodes.parts.length === 0
        ? "Non-conformity score of each label. Labels with a score up to the threshold (the line) are in the set."
        : nodes.additive
          ? "Non-conformity scores of each label: the node's own, and means over other nodes. Labels with a weighted mean up to the threshold (the line) are in the set."
          : "Bars to the right are evidence for a label, bars to the left against it. The more evidence, the lower its score; labels with a score up to the threshold (the line) are in the set.";
    const out = [
      make("h4", { text: "Why these labels" }),
      make("p", { class: "why", text: why }),
      cards,
    ];
    const rest = order.slice(shown);
    if (rest.length) {
      const button = make("button", { type: "button", text: `Show all ${order.length} labels` });
      button.addEventListener("click", () => {
        cards.append(...rest.map((label) => card(place, label, scale)));
        const next = cards.children[shown];
        next.tabIndex = -1;
        next.focus();
        button.remove();
      });
      out.push(button);
    }
    return out;
  }

  /* From where to where bars reach: scores share one scale, pieces of evidence another. */
  function scales(place, labels) {
    const scores = ["mixed", ...(nodes.additive ? nodes.parts.map(([name]) => name) : [])];
    const values = scores.flatMap((name) => labels.map((label) => scoreOf(name, place, label)));
    values.push(0, ...labels.map((label) => limitOf(place, label)).filter(Number.isFinite));
    let widest = 0;
    if (!nodes.additive) {
      for (const [name] of nodes.parts) {
        for (const label of labels)
          widest = Math.max(widest, Math.abs(scoreOf(name, place, label)));
      }
    }
    const low = Math.min(...values);
    const high = Math.max(...values);
    return { low, width: high - low || 1, widest: widest || 1 };
  }

  function card(place, label, scale) {
    const inside = holds(place, label);
    const limit = limitOf(place, label);
    const mixed = scoreOf("mixed", place, label);
    const heading = make(
      "p",
      { class: "name" },
      make("strong", {}, name(nodes.classes[label])),
      make("span", { class: "verdict", text: inside ? "in the set" : "out" }),
    );
    const bars = make("dl", { class: "bars" });
    const at = (value) => (100 * (value - scale.low)) / scale.width;
    const pieces = nodes.parts.map(([part, weight]) => ({
      name: partName(part),
      colour: colourOf(part),
      value: scoreOf(part, place, label),
      weight,
    }));
    for (const { name: words, colour, value, weight } of nodes.additive ? pieces : folded(pieces)) {
      const bar = make("span", { class: `fill ${colour}` });
      if (nodes.additive) {
        bar.style.left = at(Math.min(0, value)) + "%";
        bar.style.width = Math.abs(at(value) - at(0)) + "%";
      } else {
        const half = (50 * Math.abs(value)) / scale.widest;
        bar.style.left = (value < 0 ? 50 - half : 50) + "%";
        bar.style.width = half + "%";
      }
      const track = make("span", { class: nodes.additive ? "track" : "track centred" }, bar);
      const sign = nodes.additive || value < 0 ? "" : "+";
      bars.append(line(words, track, sign + number(value), weight));
    }
    const bar = make("span", { class: "fill mixed" });
    bar.style.left = at(Math.min(0, mixed)) + "%";
    bar.style.width = Math.abs(at(mixed) - at(0)) + "%";
    const track = make("span", { class: "track" }, bar);
    if (Number.isFinite(limit)) {
      const mark = make("span", { class: "limit" });
      mark.style.left = at(limit) + "%";
      track.append(mark);
    }
    bars.append(
      line(
        nodes.parts.length ? "mixed score" : "score",
        track,
        `${number(mixed)} ${inside ? "≤" : ">"} ${number(limit)}`,
      ),
    );
    return make("li", { class: inside ? "in" : "out" }, heading, bars);
  }

  /* Pieces of evidence, the largest first; small ones are added up. */
  function folded(pieces) {
    const order = [...pieces].sort((one, two) => Math.abs(two.value) - Math.abs(one.value));
    const small = order.filter(({ value }) => Math.abs(value) < SMALL);
    if (small.length < 2) return order;
    const value = small.reduce((sum, piece) => sum + piece.value, 0);
    const rest = { name: `${small.length} smaller parts`, colour: "part7", value };
    return [...order.slice(0, order.length - small.length), rest];
  }

  function line(name, track, text, weight) {
    track.setAttribute("aria-hidden", "true");
    const term = make("dt", { text: name });
    if (weight !== undefined && nodes.additive)
      term.append(make("small", { text: ` × ${weight.toFixed(2)}` }));
    return make("div", {}, term, make("dd", {}, track, make("span", { class: "number", text })));
  }

  // ---- Its neighbours ----

  function neighboursOf(name, place, weight) {
    const [begin, end] = [nodes["start " + name][place], nodes["start " + name][place + 1]];
    const out = [];
    for (let entry = begin; entry < end; entry++) {
      const share = nodes["share " + name][entry] / STEPS;
      out.push({ place: nodes["near " + name][entry], share, weight: weight * share });
    }
    return out;
  }

  function neighbourhood(place) {
    if (!nodes.near.length) return [];
    const kinds = nodes.near.map((name) => {
      const [, weight] = nodes.parts.find(([part]) => part === name);
      const list = neighboursOf(name, place, Math.abs(weight));
      return {
        words: partName(name),
        weight,
        list,
        name,
        colour: colourOf(name),
        all: nodes["count " + name][place],
      };
    });
    const present = kinds.filter((kind) => kind.list.length);
    const out = [make("h4", { text: "Its neighbours" })];
    if (!present.length) {
      out.push(
        make("p", { class: "why", text: "This node has no neighbours: its own score is used instead." }),
      );
      return out;
    }
    out.push(
      make("p", {
        class: "why",
        text: "Closer and larger: more weight. Filled: the same most likely label as this node; hollow: another.",
      }),
    );
    out.push(legend(present), picture(place, present));
    out.push(...kinds.map(listed));
    return out;
  }

  function picture(place, kinds) {
    const [width, height] = [420, 280];
    const [cx, cy] = [width / 2, height / 2];
    const agrees = (other) => nodes.top[other] === nodes.top[place];
    const summaries = kinds.map(
      ({ words, list }) =>
        `${list.length} ${words}, of which ${list.filter((one) => agrees(one.place)).length} agree`,
    );
    const svg = draw("svg", {
      viewBox: `0 0 ${width} ${height}`,
      class: "picture",
      role: "img",
      "aria-label": `Neighbourhood of the node: ${summaries.join("; ")}. All are listed below.`,
    });
    const sector = (2 * Math.PI) / kinds.length;
    const [lines, marks] = [draw("g", {}), draw("g", {})];
    kinds.forEach(({ name, colour, list }, which) => {
      const middle = kinds.length === 2 ? which * Math.PI + Math.PI : which * sector - Math.PI / 2;
      const [heaviest, lightest] = [list[0].share, list[list.length - 1].share];
      const most = kinds.length === 1 ? (sector * (list.length - 1)) / list.length : sector * 0.86;
      const spread = Math.min(most, list.length * 0.32);
      list.forEach((one, rank) => {
        const turn =
          list.length === 1 ? 0 : ((rank % 2 ? 1 : -1) * Math.ceil(rank / 2)) / (list.length / 2);
        const angle = middle + (turn * spread) / 2;
        const far = 0.6 + 0.4 * ((heaviest - one.share) / (heaviest - lightest || 1));
        const x = cx + Math.cos(angle) * far * 190;
        const y = cy + Math.sin(angle) * far * 128;
        const r = 4 + 4 * Math.sqrt(one.share / heaviest);
        lines.append(draw("line", { x1: cx, y1: cy, x2: x, y2: y, class: colour }));
        const same = agrees(one.place) ? "same" : "other";
        const shape = mark(SHAPES[name], x, y, r, `${colour} ${same}`);
        shape.append(
          draw("title", {}, `${nodes.ids[one.place]}: ${nodes.classes[nodes.top[one.place]]}`),
        );
        if (one.place < nodes.carried) {
          shape.classList.add("open");
          shape.addEventListener("click", () => {
            location.hash = hash(nodes.ids[one.place]);
          });
        }
        marks.append(shape);
      });
    });
    svg.append(lines, draw("circle", { cx, cy, r: 13, class: "self" }), marks);
    return svg;
  }

  function mark(shape, x, y, r, kind) {
    if (shape === "●") return draw("circle", { cx: x, cy: y, r, class: kind });
    if (shape === "▲") {
      const points = `${x},${y - 1.2 * r} ${x + 1.1 * r},${y + 0.8 * r} ${x - 1.1 * r},${y + 0.8 * r}`;
      return draw("polygon", { points, class: kind });
    }
    const turn = shape === "■" ? "" : `rotate(45 ${x} ${y})`;
    return draw("rect", {
      x: x - 0.9 * r,
      y: y - 0.9 * r,
      width: 1.8 * r,
      height: 1.8 * r,
      rx: 1,
      class: kind,
      transform: turn,
    });
  }

  function legend(kinds) {
    return make(
      "ul",
      { class: "kinds" },
      ...kinds.map(({ words, name, colour, all }) =>
        make(
          "li",
          {},
          make("span", { class: colour, "aria-hidden": "true", text: SHAPES[name] ?? "◆" }),
          ` ${all.toLocaleString("en")} ${words}`,
        ),
      ),
    );
  }

  function listed({ words, weight, all, list }) {
    const summary = `${many(all, words.replace(/s$/, ""), words)}, weight ${weight.toFixed(2)} together`;
    const body = make("tbody");
    for (const one of list) {
      body.append(
        make(
          "tr",
          {},
          make("td", {}, link(one.place)),
          make("td", { class: "n", text: percent(one.weight) }),
          make("td", { text: short(nodes.classes[nodes.top[one.place]], 20) }),
          make("td", {}, ...setCells(one.place)),
        ),
      );
    }
    const head = make(
      "tr",
      {},
      ...["Node", "Weight", "Most likely", "Set"].map((text) =>
        make("th", { scope: "col", text, class: text === "Weight" ? "n" : "" }),
      ),
    );
    const box = make("details", { class: "near" }, make("summary", { text: summary }));
    box.open = list.length > 0 && list.length <= 8;
    if (!list.length)
      box.append(
        make("p", { class: "why", text: "None: the node's own score has this weight." }),
      );
    else
      box.append(
        make(
          "div",
          { class: "scroll", tabindex: "0", role: "region", "aria-label": words },
          make("table", {}, make("thead", {}, head), body),
        ),
      );
    if (list.length < all)
      box.append(make("p", { class: "why", text: `The ${list.length} heaviest are listed.` }));
    return box;
  }

  /* A node to begin with: the first found that has several labels and neighbours of all kinds. */
  function telling() {
    const all = (place) => nodes.near.every((name) => nodes["count " + name][place]);
    return found.find((place) => nodes.size[place] > 1 && all(place)) ?? found[0];
  }

  // ---- Addresses ----

  function follow(focus) {
    if (!location.hash.startsWith("#node=")) return false;
    let id;
    try {
      id = decodeURIComponent(location.hash.slice(6));
    } catch {
      id = location.hash.slice(6);
    }
    const place = nodes.place.get(id);
    if (place !== undefined && place < nodes.carried) {
      const heading = show(place);
      if (focus) {
        heading.focus({ preventScroll: true });
        const { top } = heading.getBoundingClientRect();
        if (top < 0 || top > innerHeight - 100) $("node").scrollIntoView();
      }
    } else {
      current = -1;
      const text =
        nodes.carried < nodes.total
          ? ` among the ${nodes.carried.toLocaleString("en")} of ${nodes.total.toLocaleString("en")} nodes in this file. Request it when you write the report: --show, or show= in Python.`
          : " in this graph.";
      $("node").replaceChildren(
        make("h3", { id: "node-heading", tabindex: "-1", text: "No such node" }),
        make("p", { role: "alert" }, "There is no node ", name(short(id, 60)), text),
      );
      list();
    }
    return true;
  }

  function listen() {
    for (const kind of ["input", "change"]) $("filters").addEventListener(kind, search);
    $("filters").addEventListener("reset", () => setTimeout(search)); // once the fields are reset
    $("filters").addEventListener("submit", (event) => {
      event.preventDefault();
      const wanted = $("find").value.trim();
      const exact = nodes.place.get(wanted);
      if (exact !== undefined && exact < nodes.carried) location.hash = hash(wanted);
      else if (found.length) location.hash = hash(nodes.ids[found[0]]);
      else location.hash = hash(wanted);
    });
    $("before").addEventListener("click", () => {
      first -= PAGE;
      list();
    });
    $("after").addEventListener("click", () => {
      first += PAGE;
      list();
    });
    window.addEventListener("hashchange", () => follow(true));
  }

  async function start() {
    try {
      nodes = await unpack($("data").textContent);
    } catch (error) {
      $("waiting").textContent = "This browser cannot unpack the nodes: use a newer one.";
      return;
    }
    prepare();
    search();
    if (!follow(false) && found.length) show(telling());
    listen();
    $("waiting").hidden = true;
    $("browser").hidden = false;
    if (location.hash.startsWith("#node=")) $("node").scrollIntoView();
    document.documentElement.dataset.ready = "yes";
    performance.mark("nodes-ready");
  }

  document.addEventListener("DOMContentLoaded", () => {
    $("waiting").textContent = "Unpacking the nodes …";
    requestAnimationFrame(() => setTimeout(start)); // after the first paint
  });
})();
