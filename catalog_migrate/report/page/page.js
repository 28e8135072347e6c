"use strict";
// Table and panels of the objects, what was left out of the lists, copying. Text of the report is
// only ever set as textContent.
(() => {
  const ROWS_AT_ONCE = 100, PANELS_AT_ONCE = 20, NAMES_SHOWN = 12, SAID_FOR = 2000;
  const ACTIONS = ["drop", "create", "migrate", "redefine", "update", "refresh", "restart"];
  const RISKS = ["blocked", "decide", "loses", "absent", ""];
  const RISK_WORDS = {
    blocked: "blocked", decide: "to decide", loses: "loses values", absent: "absent",
  };

  const $ = (id) => document.getElementById(id);
  const number = (value) => value.toLocaleString("en-US");
  const counted = (value, noun) => `${number(value)} ${noun}${value === 1 ? "" : "s"}`;
  const data = JSON.parse($("data").textContent);
  const objects = data.objects.map(([name, kind, action, risk, rows, bytes, more], at) => ({
    at, name, key: name.toLowerCase(), kind: data.words[kind], action: data.words[action],
    risk: data.words[risk], rows, bytes, absent: more?.absent ?? "", more: more ?? {},
    risks: new Set([data.words[risk], more?.lost ? "loses" : "", more?.absent ? "absent" : ""]
      .filter(Boolean)),
  }));
  const picture = JSON.parse($("picture").textContent);
  const nodeOf = new Map(data.nodes.map((at, node) => [at, node]).reverse());
  const isFigure = (key) => key === "rows" || key === "bytes";
  const isChanged = (each) => each.action !== "unchanged";
  const SOME_CHANGE = objects.some(isChanged);

  function make(tag, properties = {}, ...children) {
    const made = document.createElement(tag);
    for (const [key, value] of Object.entries(properties)) {
      if (value === undefined || value === null) continue;
      if (key.includes("-") || key === "role" || key === "scope") made.setAttribute(key, value);
      else made[key] = value;
    }
    made.append(...children.filter((child) => child !== null && child !== ""));
    return made;
  }

  function say(text) {
    $("live").textContent = "";
    setTimeout(() => { $("live").textContent = text; }, 50);
  }

  const counts = (each) => [each.rows === null ? "" : counted(each.rows, "row"),
    each.more.size ?? ""].filter(Boolean).join(", ");

  // ---- copying

  async function copy(button) {
    const text = button.parentElement.querySelector("pre");
    try {
      await navigator.clipboard.writeText(text.textContent);
    } catch {
      const range = document.createRange();
      range.selectNodeContents(text);
      getSelection().removeAllRanges();
      getSelection().addRange(range);
      let done = false;
      try { done = document.execCommand("copy"); } catch { done = false; }
      if (!done) { say("selected; copy it with the keyboard"); return; }
    }
    say("copied");
    button.textContent = "Copied";
    setTimeout(() => { button.textContent = "Copy"; }, SAID_FOR);
  }

  const copyable = (label, text) => make("div", { className: "copyable" },
    make("span", { className: "label" }, label), make("pre", {}, text),
    make("button", { type: "button", className: "copy", "aria-label": `Copy ${text.slice(0, 60)}` },
      "Copy"));

  // ---- what the lists leave out

  const nameOf = (each) => (typeof each === "number" ? objects[each].name : each);

  // A long name goes on in another line behind a dot or an underscore.
  const breakable = (name) => name.split(/(?<=[._])/)
    .flatMap((part, place) => (place ? [make("wbr"), part] : [part]));

  const link = (each) => (typeof each === "number"
    ? make("a", { href: `#object-${each}`, className: "name" }, ...breakable(objects[each].name))
    : make("span", { className: "name" }, ...breakable(each)));

  const step = ([place, sign, text]) => make("li", {},
    make("span", { className: "number" }, number(place)), " ",
    make("span", { className: "sign" }, sign), " ", make("span", {}, text));

  function wave([steps, title, absent, more, word], place) {
    const listed = absent.map((each) => make("li", { className: "name" }, nameOf(each)));
    if (more) listed.push(make("li", {}, `… and ${number(more)} more; each object says from when to when it is`));
    return make("li", { className: "wave", id: `wave-${place}` }, make("h3", {}, title),
      make("ul", { className: "steps" }, ...steps.map(step)),
      absent.length ? make("div", { className: "absent" },
        make("p", {}, `${word} after this: ${counted(absent.length + more, "name")}`),
        make("ul", { className: "names" }, ...listed)) : null);
  }

  function decision([name, code, reason, text, verb], at) {
    return make("li", at ? { id: `decision-${at}` } : {},
      make("p", {}, make("strong", { className: "name" }, name), ` ${reason} `,
        code ? make("span", { className: "code" }, code) : null),
      text ? copyable(`${verb}:`, text) : null);
  }

  function showMore(button) {
    const [what, at] = button.dataset.more.split("-");
    const place = button.closest("p");
    const list = place.previousElementSibling;
    const shown = list.children.length;
    let added = [];
    if (what === "decisions") {
      added = data.decisions.map((each, index) => decision(each, shown + index + 1));
    } else if (what === "waves") {
      added = data.waves.slice(shown).map((each, index) => wave(each, shown + index));
    } else {
      added = data.waves[at][0].map(step);
    }
    list.append(...added);
    place.remove();
    return list.children[shown];
  }

  function showMoreOf(button) {
    const first = showMore(button);
    first.tabIndex = -1;
    first.focus();
  }

  // ---- one object

  const badge = (each) => make("span", { className: `badge action ${each.action}` },
    make("span", { className: "sign", "aria-hidden": "true" }, data.signs[each.action]),
    ` ${each.action}`);
  const riskBadges = (risks) => [...risks].flatMap((risk) => [
    make("span", { className: `badge risk ${risk}` }, RISK_WORDS[risk]), " "]);

  const signOf = (before, after) => (before === null ? ["+", "added"]
    : after === null ? ["−", "removed"] : ["~", "changed"]);

  function pairs(title, head, found) {
    const rows = found.map(([label, before, after]) => {
      const [sign, word] = signOf(before, after);
      const cell = (text, tag) => (text === null
        ? make("td", { className: "none" }, make("span", { "aria-hidden": "true" }, "—"),
          make("span", { className: "unseen" }, "absent"))
        : make("td", {}, make(tag, {}, text)));
      return make("tr", { className: word },
        make("td", { className: "sign" }, make("span", { role: "img", "aria-label": word }, sign)),
        make("th", { scope: "row" }, label), cell(before, "del"), cell(after, "ins"));
    });
    return make("div", { className: "scroll", tabIndex: 0, role: "region", "aria-label": title },
      make("table", { className: "pairs" }, make("caption", {}, title),
        make("thead", {}, make("tr", {}, make("td", {}), make("th", { scope: "col" }, head),
          make("th", { scope: "col" }, "Before"), make("th", { scope: "col" }, "After"))),
        make("tbody", {}, ...rows)));
  }

  function lines(title, text) {
    const shown = text.split("\n").map((line) => {
      const [tag, className] = { "+": ["ins", "added"], "-": ["del", "removed"],
        "@": ["span", "cut"] }[line[0]] ?? ["span", ""];
      return make(tag, { className }, `${line}\n`);
    });
    return make("figure", { className: "lines" }, make("figcaption", {}, title),
      make("pre", { className: "scroll", tabIndex: 0, role: "region", "aria-label": title },
        ...shown));
  }

  function differences(each) {
    const columns = [], others = [], texts = [];
    for (const [aspect, name, ...rest] of each.more.differences ?? []) {
      const word = data.words[aspect];
      if (rest.length === 1) texts.push(lines(name ? `${word} ${name}` : word, rest[0]));
      else if (word === "column") columns.push([name, ...rest]);
      else others.push([name ? `${word} ${name}` : word, ...rest]);
    }
    return [
      columns.length ? pairs("Columns", "Column", columns) : null,
      others.length ? pairs("Definition", "What", others) : null,
      ...texts,
      each.more.left ? make("p", { className: "note" },
        `… and ${counted(each.more.left, "difference")} more; --format json has all of them`) : null,
    ];
  }

  let neighbours = null, graph = null;
  function neighboursOf(each) {
    if (neighbours === null) {
      neighbours = new Map();
      const of = (node) => {
        if (!neighbours.has(node)) neighbours.set(node, { uses: [], users: [] });
        return neighbours.get(node);
      };
      const linked = (node) => data.nodes[node] ?? picture.nodes[node][0];
      for (const [used, user] of picture.edges) {
        of(user).uses.push(linked(used));
        of(used).users.push(linked(user));
      }
    }
    return neighbours.get(nodeOf.get(each.at)) ?? { uses: [], users: [] };
  }

  function names(found, between) {
    const shown = found.slice(0, NAMES_SHOWN)
      .flatMap((each, at) => (at ? [between, link(each)] : [link(each)]));
    if (found.length > NAMES_SHOWN) {
      shown.push(`${between}… and ${number(found.length - NAMES_SHOWN)} more`);
    }
    return shown;
  }

  function facts(pairs_) {
    return make("dl", { className: "facts" }, ...pairs_.filter(([, value]) => value?.length)
      .map(([label, value]) => make("div", {}, make("dt", {}, label), make("dd", {}, ...value))));
  }

  function costs(each) {
    const { more } = each;
    const held = [counts(each), more.files === undefined ? "" : counted(more.files, "file")];
    return facts([
      ["Why", more.because ? names(more.because, " → ")
        : more.why !== undefined ? [data.words[more.why]]
          : SOME_CHANGE && !isChanged(each) ? ["nothing of it changes"] : null],
      ["Was called", more.old ? [make("span", { className: "name" }, more.old)] : null],
      ["Rows", more.moves === undefined ? null : [data.words[more.moves]]],
      ["Now has", [held.filter(Boolean).join(", ")].filter(Boolean)],
      ["Copy takes", more.duration === undefined ? null : [more.duration]],
      ["Absent", each.absent ? [each.absent] : null],
    ]);
  }

  function wiring(each) {
    const { uses, users } = neighboursOf(each);
    if (!uses.length && !users.length) return null;
    const made = facts([["Uses", names(uses, ", ")], ["Used by", names(users, ", ")]]);
    const button = make("button", { type: "button" }, "Show in the graph");
    button.addEventListener("click", () => {
      graph.show(nodeOf.get(each.at));
      $("graph-part").scrollIntoView();
    });
    return make("div", { className: "wiring" }, made, graph && button);
  }

  function decisionsOf(each) {
    if (!each.more.decisions) return null;
    return make("ol", { className: "decisions" }, ...each.more.decisions.map((found) => {
      if (typeof found !== "number") return decision(found);
      const shown = $(`decision-${found}`);
      if (!shown) return decision(data.decisions[found - 1 - data.shown]);
      const made = shown.cloneNode(true);
      made.removeAttribute("id");
      return made;
    }));
  }

  function fill(panel, each) {
    if (panel.dataset.filled) return;
    panel.dataset.filled = "yes";
    const { lost, notes } = each.more;
    panel.append(make("div", { className: "inside" },
      lost ? make("ul", { className: "lost", "aria-label": "Lost" }, ...lost.map((text) => make("li", {},
        make("span", { className: "sign", role: "img", "aria-label": "lost" }, "!"), ` ${text}`))) : null,
      costs(each), decisionsOf(each), ...differences(each),
      notes ? make("ul", { className: "notes" }, ...notes.map((text) => make("li", {}, text))) : null,
      wiring(each)));
  }

  const panels = new Map();
  function panelOf(each) {
    if (panels.has(each.at)) return panels.get(each.at);
    const panel = make("details", { className: "panel", id: `object-${each.at}` },
      make("summary", {}, make("span", { className: "name" }, ...breakable(each.name)), " ",
        make("span", { className: "kind" }, each.kind.replaceAll("_", " ")), " ", badge(each), " ",
        ...riskBadges(each.risks), make("span", { className: "cost" }, counts(each))));
    panel.addEventListener("toggle", () => { if (panel.open) fill(panel, each); });
    panels.set(each.at, panel);
    return panel;
  }

  function open(each) {
    const panel = panelOf(each);
    fill(panel, each);
    panel.open = true;
    return panel;
  }

  // ---- the table, and the panels in its order

  const state = { name: "", kind: "", action: "", risk: "", sort: "", down: false };
  let found = [], order = new Map(), rowsShown = 0, body = null, moreRows = null;

  const rank = (list, value) => (list.indexOf(value) + list.length + 1) % (list.length + 1);
  const KEYS = {
    name: (each) => each.key, kind: (each) => each.kind,
    action: (each) => rank(ACTIONS, each.action), risk: (each) => RISKS.indexOf(each.risk),
    absent: (each) => Number(each.absent.match(/\d[\d,]*/)?.[0].replaceAll(",", "") ?? Infinity),
    rows: (each) => each.rows ?? -1, bytes: (each) => each.bytes ?? -1,
  };
  const usual = [...objects].sort((one, other) => isChanged(other) - isChanged(one));

  function find() {
    const name = state.name.trim().toLowerCase();
    found = usual.filter((each) => (!name || each.key.includes(name))
      && (!state.kind || each.kind === state.kind)
      && (!state.action || (state.action === "changed" ? isChanged(each) : each.action === state.action))
      && (!state.risk || (state.risk === "any" ? each.risks.size : each.risks.has(state.risk))));
    if (state.sort) {
      const key = KEYS[state.sort], way = state.down ? -1 : 1;
      found.sort((one, other) => {
        const [a, b] = [key(one), key(other)];
        return a < b ? -way : a > b ? way : 0;
      });
    }
    order = new Map(found.map((each, at) => [each.at, at]));
  }

  const plural = (word) => (word.endsWith("y") ? `${word.slice(0, -1)}ies` : `${word}s`);

  const summaries = new Map();
  function summary(each) {
    if (summaries.has(each.at)) return summaries.get(each.at);
    const { because, differences: all = [], moves } = each.more;
    const named = new Map();
    for (const [aspect, name] of all) if (name) named.set(aspect, (named.get(aspect) ?? 0) + 1);
    const parts = [...named].map(([aspect, count]) => (
      `${number(count)} ${count === 1 ? data.words[aspect] : plural(data.words[aspect])}`));
    for (const [aspect, name] of all) if (!name) parts.push(data.words[aspect]);
    if (!parts.length && because) parts.push(`because of ${nameOf(because[0])}`);
    const rows = moves === undefined ? "" : data.words[moves].split(/[:;,]/)[0];
    summaries.set(each.at, [parts.join(", "), rows].filter(Boolean).join("; "));
    return summaries.get(each.at);
  }

  const COLUMNS = [
    ["name", "Object", (each) => link(each.at)],
    ["kind", "Kind", (each) => each.kind.replaceAll("_", " ")],
    ["action", "Action", (each) => (isChanged(each) ? badge(each) : "unchanged")],
    ["risk", "Risk", (each) => make("span", {}, ...riskBadges(
      [...each.risks].filter((risk) => risk !== "absent" || each.risks.size === 1)))],
    ["rows", "Rows", (each) => (each.rows === null ? "" : number(each.rows))],
    ["bytes", "Size", (each) => (each.more.size ?? "")],
    ["absent", "Absent", (each) => each.absent.replace(/^from step (.*) to step (.*)$/, "steps\u00a0$1\u00a0to\u00a0$2")],
    ["", "What changes", summary],
  ].filter(([key]) => (key === "name" || key === "kind" ? true
    : isFigure(key) ? objects.some((each) => each[key] !== null)
      : key === "absent" ? objects.some((each) => each.absent) : SOME_CHANGE));

  const row = (each, place) => make("tr", { "aria-rowindex": String(place + 2) },
    ...COLUMNS.map(([key, , show_]) => make(key === "name" ? "th" : "td",
      { scope: key === "name" ? "row" : null, className: isFigure(key) ? "figure" : "" }, show_(each))));

  const further = (left, atOnce, noun) => (
    `Show ${left > atOnce ? `${number(atOnce)} of ` : ""}${counted(left, `further ${noun}`)}`);

  function addRows(count) {
    const next = found.slice(rowsShown, rowsShown + count);
    body.append(...next.map((each, at) => row(each, rowsShown + at)));
    rowsShown += next.length;
    const left = found.length - rowsShown;
    moreRows.hidden = left <= 0;
    moreRows.textContent = further(left, 5 * ROWS_AT_ONCE, "row");
  }

  const place = $("panels");
  const shownPanels = () => [...place.querySelectorAll("details")];
  let panelsShown = 0, morePanels = null;

  function addPanels(count) {
    const changed = found.filter(isChanged);
    for (const each of changed.slice(panelsShown, panelsShown + count)) {
      if (each.more.differences || each.more.lost || each.more.decisions) {
        if (!panels.has(each.at)) open(each);
      }
      place.insertBefore(panelOf(each), morePanels);
    }
    panelsShown = Math.min(panelsShown + count, changed.length);
    const left = changed.length - panelsShown;
    morePanels.hidden = left <= 0;
    morePanels.textContent = further(left, 2 * PANELS_AT_ONCE, "object");
  }

  function redraw() {
    find();
    body.replaceChildren();
    rowsShown = 0;
    addRows(ROWS_AT_ONCE);
    for (const each of shownPanels()) each.remove();
    panelsShown = 0;
    addPanels(PANELS_AT_ONCE);
    const table = body.parentElement;
    table.setAttribute("aria-rowcount", String(found.length + 1));
    $("found").textContent = found.length === objects.length
      ? counted(objects.length, "object") : `${number(found.length)} of ${counted(objects.length, "object")}`;
    $("none").hidden = found.length > 0;
  }

  function show(at) {
    const each = objects[at];
    if (!each) return;
    const panel = open(each);
    if (!panel.isConnected) {
      const mine = order.get(at) ?? -1;
      const next = isChanged(each)
        ? shownPanels().find((other) => order.get(Number(other.id.slice(7))) > mine) : shownPanels()[0];
      place.insertBefore(panel, next ?? morePanels);
    }
    panel.scrollIntoView({ block: "start" });
    panel.querySelector("summary").focus({ preventScroll: true });
  }

  function select(label, key, options) {
    const chosen = make("select", { id: `filter-${key}` },
      ...options.map(([value, text]) => make("option", { value }, text)));
    chosen.addEventListener("change", () => { state[key] = chosen.value; redraw(); });
    return make("label", {}, make("span", {}, label), chosen);
  }

  function options(key, all, words = {}) {
    const counts = new Map();
    for (const each of objects) {
      for (const value of key === "risk" ? each.risks : [each[key]]) {
        counts.set(value, (counts.get(value) ?? 0) + 1);
      }
    }
    const sorted = [...counts.keys()].sort();
    return [...all, ...sorted.map((value) => [value,
      `${words[value] ?? value.replaceAll("_", " ")} (${number(counts.get(value))})`])];
  }

  function startTable() {
    const input = make("input", { type: "search", id: "filter-name", autocomplete: "off" });
    input.addEventListener("input", () => { state.name = input.value; redraw(); });
    const filters = make("form", { className: "filters", role: "search", "aria-label": "Filter the objects" },
      make("label", {}, make("span", {}, "Name contains"), input),
      select("Kind", "kind", options("kind", [["", "every kind"]])),
      ...(SOME_CHANGE ? [
        select("Action", "action", options("action", [["", "every action"],
          ["changed", `all that change (${number(objects.filter(isChanged).length)})`]])),
        select("Risk", "risk", options("risk", [["", "with and without"], ["any", "with a risk"]], RISK_WORDS)),
      ] : []),
      make("button", { type: "reset" }, "Clear"));
    filters.addEventListener("submit", (event) => event.preventDefault());
    filters.addEventListener("reset", () => {
      Object.assign(state, { name: "", kind: "", action: "", risk: "" });
      redraw();
    });
    const head = COLUMNS.map(([key, title]) => {
      if (!key) return make("th", { scope: "col" }, title);
      const button = make("button", { type: "button" }, title,
        make("span", { className: "arrow", "aria-hidden": "true" }));
      const cell = make("th", { scope: "col", "aria-sort": "none", className: isFigure(key) ? "figure" : "" }, button);
      button.addEventListener("click", () => sortBy(key, cell));
      return cell;
    });
    body = make("tbody");
    const table = make("table", { className: "objects" },
      make("caption", { className: "unseen" }, "Every object with what happens to it; the heads sort"),
      make("thead", {}, make("tr", {}, ...head)), body);
    const scroll = make("div", { className: "scroll tall", tabIndex: 0, role: "region", "aria-label": "Table of objects" }, table);
    scroll.addEventListener("scroll", () => {
      if (!moreRows.hidden && scroll.scrollTop + 2 * scroll.clientHeight > scroll.scrollHeight) addRows(ROWS_AT_ONCE);
    }, { passive: true });
    moreRows = make("button", { type: "button", className: "more" });
    moreRows.addEventListener("click", () => addRows(5 * ROWS_AT_ONCE));
    morePanels = make("button", { type: "button", className: "more" });
    morePanels.addEventListener("click", () => addPanels(2 * PANELS_AT_ONCE));
    place.append(morePanels);
    $("table").append(filters, make("p", { className: "found" }, make("output", { id: "found", htmlFor: "filter-name" })),
      scroll, make("p", { id: "none", className: "note", hidden: true }, "No object is like that."), make("p", {}, moreRows));
    $("table").hidden = false;
    redraw();
  }

  function sortBy(key, cell) {
    const first = isFigure(key);
    if (state.sort !== key) Object.assign(state, { sort: key, down: first });
    else if (state.down === first) state.down = !first;
    else state.sort = "";
    for (const other of cell.parentElement.querySelectorAll("[aria-sort]")) other.setAttribute("aria-sort", "none");
    if (state.sort) cell.setAttribute("aria-sort", state.down ? "descending" : "ascending");
    redraw();
  }

  // ---- printing: every step, and every object that changes, unfolded

  let opened = [];
  addEventListener("beforeprint", () => {
    for (const button of document.querySelectorAll("button[data-more]")) showMore(button);
    if (!objects.length) return;
    addRows(Math.max(found.filter(isChanged).length - rowsShown, 0));
    addPanels(found.length);
    opened = shownPanels().filter((panel) => !panel.open);
    for (const panel of opened) open(objects[Number(panel.id.slice(7))]);
  });
  addEventListener("afterprint", () => {
    for (const panel of opened) panel.open = false;
    opened = [];
  });

  // ---- start

  for (const button of document.querySelectorAll("button[hidden]")) button.hidden = false;
  document.addEventListener("click", (event) => {
    const button = event.target.closest("button");
    if (button?.matches(".copy")) copy(button);
    else if (button?.dataset.more) showMoreOf(button);
    const to = event.target.closest('a[href^="#object-"]');
    if (to) show(Number(to.hash.slice(8)));
  });
  const follow = () => { if (location.hash.startsWith("#object-")) show(Number(location.hash.slice(8))); };
  addEventListener("hashchange", follow);
  if ($("graph")) graph = startGraph($("graph"), picture, { onSelect: (node) => show(data.nodes[node]) });
  if (objects.length) startTable();
  follow();
})();
