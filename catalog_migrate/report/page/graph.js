"use strict";
// The picture of report/svg.py, made interactive; it needs no other script.
//
// startGraph(root, picture, options) takes the element that has the static SVG (draw_picture), the
// value of encode_picture, and {onSelect(node)}, which is called when an object is chosen, with its
// position in the nodes. It returns {show(node)}, which opens the picture at an object and one hop
// round it. Names are only ever set as text.

// What report/layering.py does.
const graphLayers = (() => {
  const SWEEPS = 8;
  const lists = (size) => Array.from({ length: size }, () => []);

  function arrange(size, edges, soft = [], rank = null) {
    const kept = withoutCircles(size, edges, soft, rank);
    const layers = generations(size, kept);
    const used = lists(size), users = lists(size), place = new Array(size).fill(0);
    for (const [one, other] of kept) {
      used[other].push(one);
      users[one].push(other);
    }
    const spread = (layer) => layer.forEach((node, at) => {
      place[node] = (at + 0.5) / layer.length;
    });
    const mean = (near, node) => near[node].length
      ? near[node].reduce((sum, other) => sum + place[other], 0) / near[node].length : place[node];
    layers.forEach(spread);
    for (let sweep = 0; sweep < SWEEPS; sweep += 1) {
      const near = sweep % 2 ? users : used;
      for (const layer of sweep % 2 ? [...layers].reverse() : layers) {
        const wanted = new Map(layer.map((node) => [node, mean(near, node)]));
        layer.sort((one, other) => wanted.get(one) - wanted.get(other));
        spread(layer);
      }
    }
    return layers;
  }

  function generations(size, edges) {
    const users = lists(size), waiting = new Array(size).fill(0), layers = [];
    for (const [used, user] of edges) {
      users[used].push(user);
      waiting[user] += 1;
    }
    let layer = [...waiting.keys()].filter((node) => !waiting[node]);
    while (layer.length) {
      layers.push(layer);
      const following = [];
      for (const node of layer) {
        for (const user of users[node]) {
          waiting[user] -= 1;
          if (!waiting[user]) following.push(user);
        }
      }
      layer = following.sort((one, other) => one - other);
    }
    return layers;
  }

  function withoutCircles(size, edges, soft = [], rank = null) {
    let firm = edges.filter(([used, user]) => used !== user);
    const both = [...firm, ...soft.filter(([used, user]) => used !== user)];
    if (isOrdered(size, both)) return both;
    const all = circles(size, both);
    const kept = both.slice(firm.length).filter(([used, user]) => all[used] !== all[user]);
    if (!isOrdered(size, firm)) {
      const found = circles(size, firm);
      const height = (node) => (rank ? rank[node] : node);
      firm = firm.filter(([used, user]) =>
        found[used] !== found[user] || height(used) < height(user));
    }
    return [...firm, ...kept];
  }

  const isOrdered = (size, edges) => generations(size, edges).flat().length === size;

  // Tarjan's algorithm without recursion.
  function circles(size, edges) {
    const users = lists(size), found = new Array(size).fill(-1);
    for (const [used, user] of edges) users[used].push(user);
    const index = new Array(size).fill(-1), low = new Array(size).fill(0), open = [];
    let count = 0, number = 0;
    for (let root = 0; root < size; root += 1) {
      if (index[root] >= 0) continue;
      const trail = [[root, 0]];
      while (trail.length) {
        const step = trail[trail.length - 1], [node, next] = step;
        if (next === 0) {
          index[node] = low[node] = count;
          count += 1;
          open.push(node);
        }
        if (next < users[node].length) {
          step[1] += 1;
          const user = users[node][next];
          if (index[user] < 0) trail.push([user, 0]);
          else if (found[user] < 0) low[node] = Math.min(low[node], index[user]);
          continue;
        }
        trail.pop();
        if (trail.length) {
          const before = trail[trail.length - 1][0];
          low[before] = Math.min(low[before], low[node]);
        }
        if (low[node] === index[node]) {
          let last;
          do {
            last = open.pop();
            found[last] = number;
          } while (last !== node);
          number += 1;
        }
      }
    }
    return found;
  }

  return { arrange, generations, withoutCircles };
})();

function startGraph(root, picture, options = {}) {
  // ---- what report/boxes.py and report/svg.py have, too

  const MOST = 300, GROUPS = 100, LABELS = 40, LETTERS = 24, LONG = 8, FEW = 30;
  const WIDTH = 208, HEIGHT = 40, BETWEEN = 72, LABELLED = 140, BESIDE = 20, BELOW = 16, MARGIN = 16;
  const ACROSS = WIDTH + BESIDE, DOWN = HEIGHT + BELOW, LEAST = 680, ASPECT = 1.6;
  const OTHERS = "\0";
  const GROUP_NAMES = Object.assign(Object.create(null), { [OTHERS]: "other groups", "": "without a schema" });
  const STYLES = { "+": "create", "−": "drop", "~": "migrate", "*": "update", "": "unchanged" };

  const nodes = picture.nodes.map(([name, kind, group, action, old, now, sign]) => ({
    name, kind, group, action, old, new: now,
    sign,
    changed: action !== "unchanged" || old !== now,
  }));
  const edges = picture.edges.map(([used, user, label, old, now]) => ({
    used, user, label, old, new: now,
  }));
  const isOn = (part, side) => side === "both" || part[side];
  const words = (kind) => kind.replaceAll("_", " ");
  const number = (value) => value.toLocaleString("en-US");
  const counted = (value, noun) => `${number(value)} ${noun}${value === 1 ? "" : "s"}`;
  const without = (text, prefix) => (text.startsWith(prefix) ? text.slice(prefix.length) : text);
  const groups = groupNodes();

  function groupNodes() {
    const weights = new Map();
    for (const node of nodes) {
      const weight = weights.get(node.group) ?? [0, 0];
      weights.set(node.group, [weight[0] - node.changed, weight[1] - 1]);
    }
    if (weights.size <= GROUPS) return nodes.map((node) => node.group);
    const sorted = [...weights].sort(([, one], [, other]) =>
      one[0] - other[0] || one[1] - other[1]);
    const kept = new Set(sorted.slice(0, GROUPS - 1).map(([group]) => group));
    return nodes.map((node) => (kept.has(node.group) ? node.group : OTHERS));
  }

  function joinBoxes(side, shown) {
    const rest = new Map(), parts = new Set(), rank = ranks(side), boxes = [];
    nodes.forEach((node, place) => {
      const group = groups[place];
      if (shown.has(place)) {
        parts.add(group);
        boxes.push({ group, members: [place], node: place, whole: true });
      } else if (isOn(node, side)) {
        if (!rest.has(group)) rest.set(group, []);
        rest.get(group).push(place);
      }
    });
    for (const [group, members] of rest) {
      boxes.push({ group, members, node: null, whole: !parts.has(group) });
    }
    for (const box of boxes) {
      box.rank = box.members.reduce((sum, place) => sum + rank[place], 0) / box.members.length;
    }
    boxes.sort((one, other) => one.rank - other.rank || one.members[0] - other.members[0]);
    return { boxes, arrows: joinArrows(side, boxes) };
  }

  function joinArrows(side, boxes) {
    const boxOf = new Map(), joined = new Map();
    boxes.forEach((box, at) => box.members.forEach((place) => boxOf.set(place, at)));
    for (const edge of edges) {
      const used = boxOf.get(edge.used), user = boxOf.get(edge.user);
      if (!isOn(edge, side) || used === undefined || user === undefined || used === user) continue;
      const key = `${used} ${user}`;
      const arrow = joined.get(key)
        ?? { used, user, count: 0, old: false, new: false, labels: new Set() };
      arrow.count += 1;
      arrow.old ||= edge.old;
      arrow.new ||= edge.new;
      if (edge.label) arrow.labels.add(edge.label);
      joined.set(key, arrow);
    }
    return [...joined.values()].map((arrow) => ({ ...arrow, labels: [...arrow.labels].sort() }));
  }

  function ranks(side) {
    const found = new Array(nodes.length).fill(0);
    const seen = edges.filter((edge) => isOn(edge, side));
    const ends = (isFirm) => seen
      .filter((edge) => (edge.new || side === "old") === isFirm)
      .map((edge) => [edge.used, edge.user]);
    const kept = graphLayers.withoutCircles(nodes.length, ends(true), ends(false));
    graphLayers.generations(nodes.length, kept).forEach((layer, at) => {
      for (const place of layer) found[place] = at;
    });
    return found;
  }

  function placeBoxes(boxes, arrows, side, top) {
    const joined = [...new Set(arrows.flatMap((arrow) => [arrow.used, arrow.user]))]
      .sort((one, other) => one - other);
    const at = new Map(joined.map((box, place) => [box, place]));
    const ends = (isFirm) => arrows
      .filter((arrow) => (arrow.new || side === "old") === isFirm)
      .map((arrow) => [at.get(arrow.used), at.get(arrow.user)]);
    const rank = joined.map((box) => Math.floor(boxes[box].rank + 0.5));
    const layers = graphLayers.arrange(joined.length, ends(true), ends(false), rank)
      .map((layer) => layer.map((place) => joined[place]));
    const between = countLabels(arrows) ? LABELLED : BETWEEN;
    const most = rows(layers, between);
    const split = layers.map((layer) => Math.ceil(layer.length / most));
    const deep = layers.map((layer, place) => Math.ceil(layer.length / split[place]));
    const tall = Math.max(0, ...deep);
    const places = boxes.map(() => null);
    let x = MARGIN;
    layers.forEach((layer, place) => {
      const columns = split[place], left = x, right = x + columns * ACROSS - BESIDE;
      const above = top + Math.floor((tall - deep[place]) / 2) * DOWN;
      layer.forEach((box, inside) => {
        places[box] = {
          x: x + (inside % columns) * ACROSS, y: above + Math.floor(inside / columns) * DOWN,
          layer: place, left, right,
        };
      });
      x = right + between;
    });
    let width = Math.max(layers.length ? x - between + MARGIN : 0, LEAST);
    const height = top + tall * DOWN;
    const alone = [...boxes.keys()].filter((box) => !at.has(box));
    if (!alone.length) return { places, width, height: height - BELOW + MARGIN, grid: null, between };
    const grid = height + (layers.length ? 28 : 18);
    const fitting = Math.floor((width - 2 * MARGIN + BESIDE) / ACROSS);
    const columns = Math.max(
      fitting, Math.ceil(Math.sqrt(alone.length * ASPECT * DOWN / ACROSS)));
    alone.forEach((box, place) => {
      places[box] = {
        x: MARGIN + (place % columns) * ACROSS, y: grid + Math.floor(place / columns) * DOWN,
      };
    });
    width = Math.max(width, 2 * MARGIN + Math.min(columns, alone.length) * ACROSS - BESIDE);
    const bottom = grid + Math.ceil(alone.length / columns) * DOWN - BELOW + MARGIN;
    return { places, width, height: bottom, grid, between };
  }

  function countLabels(arrows) {
    const count = arrows.filter((arrow) => arrow.labels.length).length;
    return count <= LABELS ? count : 0;
  }

  function rows(layers, between) {
    const longest = Math.max(1, ...layers.map((layer) => layer.length));
    let best = longest, nearest = Infinity;
    for (let most = Math.min(LONG, longest); most <= longest; most += 1) {
      const columns = layers.reduce((sum, layer) => sum + Math.ceil(layer.length / most), 0);
      const width = columns * ACROSS + layers.length * (between - BESIDE);
      const off = Math.abs(Math.log(width / (most * DOWN) / ASPECT));
      if (off < nearest) [best, nearest] = [most, off];
    }
    return best;
  }

  function curve(used, user, lane, between) {
    const p = (x, y) => `${Number(x.toFixed(1))} ${Number(y.toFixed(1))}`;
    const n = (value) => Number(value.toFixed(1));
    const beside = (lane % 5 - 2) * 2, middle = HEIGHT / 2;
    let x = used.x + WIDTH, y = used.y + middle;
    const toX = user.x - 1, toY = user.y + middle;
    if (user.layer <= used.layer) {
      const low = used.y + HEIGHT + BELOW / 2 + beside, right = x + 18, left = toX - 18;
      return [`M${p(x, y)}C${p(right, y)} ${p(right, low)} ${p(x, low)}`
        + `H${n(user.x)}C${p(left, low)} ${p(left, toY)} ${p(toX, toY)}`, [(x + toX) / 2, low]];
    }
    let path = `M${p(x, y)}`;
    if (x < used.right) {
      const low = used.y + HEIGHT + BELOW / 2 + beside;
      path = `M${p(x - 16, y + middle)}Q${p(x - 16, low)} ${p(x - 6, low)}H${n(used.right)}`;
      y = low;
    }
    x = used.right;
    if (user.layer === used.layer + 1 && user.x === user.left) {
      const half = (x + toX) / 2;
      return [`${path}C${p(half, y)} ${p(half, toY)} ${p(toX, toY)}`, [half, (y + toY) / 2]];
    }
    const high = user.y - BELOW / 2 + beside, turn = x + between - 10, half = (x + turn) / 2;
    path += `C${p(half, y)} ${p(half, high)} ${p(turn, high)}`;
    if (user.x === user.left) {
      const start = user.left - 34;
      path += `H${n(start)}C${p(start + 16, high)} ${p(start + 14, toY)} ${p(toX, toY)}`;
    } else {
      path += `H${n(user.x + 6)}Q${p(user.x + 16, high)} ${p(user.x + 16, user.y - 1)}`;
    }
    return [path, [half, (y + high) / 2]];
  }

  function shorten(text, room = LETTERS) {
    const letters = [...text];
    const wide = letters.map((letter) => (letter.codePointAt(0) >= 0x1100 ? 2 : 1));
    if (wide.reduce((sum, each) => sum + each, 0) <= room) return text;
    let left = 0, right = 0, taken = 1;
    for (;;) {
      const ahead = left <= right, at = ahead ? left : letters.length - 1 - right;
      if (taken + wide[at] > room) break;
      taken += wide[at];
      if (ahead) left += 1;
      else right += 1;
    }
    return `${letters.slice(0, left).join("")}…${letters.slice(letters.length - right).join("")}`;
  }

  const nameOf = (box) => {
    if (box.node === null) return GROUP_NAMES[box.group] ?? box.group;
    const node = nodes[box.node], name = without(node.name, `${node.kind}:`);
    return without(name, `${node.group}.`) || name;
  };

  function captionOf(box) {
    if (box.node === null) {
      const count = number(box.members.length || box.shown);
      if (!box.members.length) return `${count} shown`;
      return `${count} ${box.whole ? `object${count === "1" ? "" : "s"}` : "more"}`;
    }
    return [words(nodes[box.node].kind), nodes[box.node].group].filter(Boolean).join(" · ");
  }

  function wholeOf(box) {
    if (box.node === null) {
      if (!box.members.length) return `${nameOf(box)}: ${counted(box.shown, "object")} shown`;
      const found = new Map();
      for (const place of box.members) {
        const action = nodes[place].action;
        if (action !== "unchanged") found.set(action, (found.get(action) ?? 0) + 1);
      }
      const more = [...found].sort(([one], [other]) => (one < other ? -1 : 1))
        .map(([action, count]) => `, ${number(count)} ${action}`).join("");
      return `${nameOf(box)}: ${counted(box.members.length, "object")}${more}`;
    }
    const node = nodes[box.node];
    return `${node.name} (${words(node.kind)})${node.changed ? `: ${node.action}` : ""}`;
  }

  function arrowText(arrow, boxes, side) {
    let text = `${nameOf(boxes[arrow.user])} uses ${nameOf(boxes[arrow.used])}`;
    if (arrow.count > 1) text += `, ${number(arrow.count)} times`;
    if (arrow.labels.length) text += `: ${arrow.labels.join(", ")}`;
    if (side === "both" && arrow.old !== arrow.new) {
      text += arrow.old ? " (only before)" : " (only after)";
    }
    return text;
  }

  // ---- elements

  function make(tag, attributes = {}, ...children) {
    const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
    for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
    made.append(...children);
    return made;
  }

  function control(label, act, attributes = {}) {
    const made = document.createElement("button");
    made.type = "button";
    made.textContent = label;
    for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
    made.addEventListener("click", act);
    return made;
  }

  function drawBox(box, at) {
    const node = box.node === null ? null : nodes[box.node];
    const style = node === null ? "group" : STYLES[node.sign];
    const kind = node === null ? "group" : node.kind;
    const shape = KINDS.has(kind) ? kind : "other";
    const caption = make("text", { class: "caption", x: 28, y: 15 }, shorten(captionOf(box), 32));
    if (node === null) {
      for (const sign of ["+", "−", "~", "*"]) {
        const count = box.members.filter((place) => nodes[place].sign === sign).length;
        if (count) {
          caption.append(make("tspan", { class: STYLES[sign], dx: 7 }, `${sign}${number(count)}`));
        }
      }
    }
    const sign = node === null ? (box.isOpen ? "▾" : "▸") : node.sign;
    const drawn = make("g", {
      class: `box ${style}`, role: "button", tabindex: -1, transform: `translate(${at.x} ${at.y})`,
      "aria-label": labelOf(box),
    }, make("title", {}, wholeOf(box)), make("use", { href: `#picture-${shape}` }), caption,
    make("text", { x: 28, y: 31 }, shorten(nameOf(box))));
    if (sign) {
      drawn.append(make("text", { class: "sign", x: node === null ? 15 : 16, y: node === null ? 26 : 27 }, sign));
    }
    if (node === null) drawn.setAttribute("aria-expanded", String(Boolean(box.isOpen)));
    else drawn.setAttribute("data-node", box.node);
    if (box.node !== null && box.node === state.selected) {
      drawn.classList.add("focus");
      drawn.setAttribute("aria-current", "true");
    }
    return drawn;
  }

  const counts = new Map();

  // How many objects each one uses, and how many use it.
  function countUses(side) {
    if (!counts.has(side)) {
      const found = nodes.map(() => [0, 0]);
      for (const edge of edges) {
        if (!isOn(edge, side)) continue;
        found[edge.user][0] += 1;
        found[edge.used][1] += 1;
      }
      counts.set(side, found);
    }
    return counts.get(side);
  }

  function labelOf(box) {
    if (box.node === null) return wholeOf(box);
    const [uses, used] = countUses(state.side)[box.node];
    return `${wholeOf(box)}; uses ${number(uses)}, used by ${number(used)}`;
  }

  // ---- state: which objects are shown, on which side, how large

  const svg = root.querySelector("svg.picture");
  const KINDS = new Set([...svg.querySelectorAll("defs > g[id^='picture-']")]
    .map((each) => each.id.slice("picture-".length)));
  const top = Number(svg.dataset.top);
  const initial = new Set([...svg.querySelectorAll("[data-node]")]
    .map((each) => Number(each.dataset.node)));
  const state = {
    side: "both", shown: new Map(), around: null, selected: null, scale: 1, here: null,
  };
  let drawn = { boxes: [], arrows: [], layout: null, elements: [], lines: [] };

  const isShown = (place) => {
    const chosen = state.shown.get(groups[place]);
    return chosen ? chosen.has(place) : (state.around ?? initial).has(place);
  };
  const membersOf = (group) => [...nodes.keys()].filter(
    (place) => groups[place] === group && isOn(nodes[place], state.side));

  function draw() {
    const shown = new Set([...nodes.keys()].filter(
      (place) => isOn(nodes[place], state.side) && isShown(place)));
    const { boxes, arrows } = joinBoxes(state.side, shown);
    for (const box of boxes) if (box.node === null) box.isOpen = state.shown.get(box.group)?.size;
    const rest = new Set(boxes.filter((box) => box.node === null).map((box) => box.group));
    for (const group of new Set(groups)) {
      const count = rest.has(group) ? 0 : membersOf(group).length;
      // a group that is wholly shown has a box, too, which closes it again; a small picture needs none
      const isLong = nodes.length > FEW || state.shown.has(group);
      if (count > 1 && isLong) boxes.push({ group, members: [], node: null, shown: count, isOpen: true });
    }
    const layout = placeBoxes(boxes, arrows, state.side, top);
    const labelled = countLabels(arrows);
    const lines = arrows.map((arrow) => {
      const isOne = state.side === "both" && arrow.old !== arrow.new;
      const style = isOne ? (arrow.old ? "before" : "after") : "kept";
      const [path, middle] = curve(
        layout.places[arrow.used], layout.places[arrow.user], arrow.used, layout.between);
      const isRest = boxes[arrow.used].node === null && boxes[arrow.user].node === null;
      const line = make("g", { class: `arrow ${style}${isRest ? " rest" : ""}` },
        make("title", {}, arrowText(arrow, boxes, state.side)),
        make("path", { d: path, "marker-end": `url(#picture-${style})` }));
      if (labelled && arrow.labels.length) {
        line.append(make("text", { x: middle[0], y: middle[1] - 4 },
          shorten(arrow.labels.join(", "), 20)));
      }
      return line;
    });
    const elements = boxes.map((box, at) => drawBox(box, layout.places[at]));
    const paper = svg.querySelector(".boxes");
    svg.querySelector(".arrows").replaceChildren(...lines);
    paper.replaceChildren(...elements);
    if (layout.grid !== null) {
      paper.append(make("text", { class: "faint", x: MARGIN, y: layout.grid - 8 },
        "without a connection to another box:"));
    }
    svg.setAttribute("viewBox", `0 0 ${layout.width} ${layout.height}`);
    const back = svg.querySelector(".paper");
    back.setAttribute("width", layout.width);
    back.setAttribute("height", layout.height);
    drawn = { boxes, arrows, layout, elements, lines };
    light(null);
    enter(find(state.here) ?? 0, false);
    zoom(state.scale);
  }

  const keyOf = (box) => (box.node === null ? `group ${box.group}` : `node ${box.node}`);
  const find = (key) => {
    const at = drawn.boxes.findIndex((box) => keyOf(box) === key);
    return at < 0 ? null : at;
  };

  function enter(at, isFocused = true) {
    drawn.elements.forEach((each, place) => each.setAttribute("tabindex", place === at ? 0 : -1));
    if (!drawn.boxes[at]) return;
    state.here = keyOf(drawn.boxes[at]);
    if (isFocused) drawn.elements[at].focus();
  }

  function act(at) {
    const box = drawn.boxes[at];
    if (box.node === null) {
      toggle(box);
      return;
    }
    state.selected = box.node;
    drawn.elements.forEach((each, place) => {
      const isSelected = drawn.boxes[place].node === box.node;
      each.classList.toggle("focus", isSelected);
      if (isSelected) each.setAttribute("aria-current", "true");
      else each.removeAttribute("aria-current");
    });
    options.onSelect?.(box.node);
  }

  function toggle(box) {
    const members = membersOf(box.group);
    const first = (state.around ?? initial);
    if (box.isOpen) {
      const isWhole = members.every((place) => first.has(place));
      if (state.shown.has(box.group) && !isWhole) state.shown.delete(box.group);
      else state.shown.set(box.group, new Set());
      state.here = `group ${box.group}`;
      draw();
      say(`${nameOf(box)} closed`);
    } else {
      const others = () => drawn.boxes.filter((each) => each.group !== box.group
        && (each.members.length || each.node !== null)).length;
      const isTooMuch = () => others() + members.length > MOST;
      if (isTooMuch() && state.shown.size) {
        state.shown.clear();
        draw();
      }
      if (isTooMuch()) {
        state.around = new Set();
        draw();
      }
      const room = Math.max(MOST - others() - 1, 20);
      const sorted = members.length <= room + 1 ? members : [...members]
        .sort((one, other) => nodes[other].changed - nodes[one].changed || one - other)
        .slice(0, room);
      state.shown.set(box.group, new Set(sorted));
      state.here = `node ${box.members[0]}`;
      draw();
      const part = sorted.length < members.length ? `the first ${number(sorted.length)} of ` : "";
      say(`${nameOf(box)} opened: ${part}${counted(members.length, "object")}`);
    }
    enter(find(state.here) ?? find(`group ${box.group}`) ?? 0);
  }

  function show(place) {
    if (!isOn(nodes[place], state.side)) turn("both");
    state.selected = place;
    if (find(`node ${place}`) === null) {
      const near = new Set([place]);
      for (const edge of edges) {
        if (near.size > MOST / 2) break;
        if (edge.used === place) near.add(edge.user);
        if (edge.user === place) near.add(edge.used);
      }
      state.around = near;
      state.shown.clear();
    }
    state.here = `node ${place}`;
    draw();
    enter(find(state.here));
  }

  function turn(side) {
    state.side = side;
    for (const each of sides) each.setAttribute("aria-pressed", String(each.dataset.side === side));
    draw();
  }

  function reset() {
    state.shown.clear();
    state.around = state.selected = state.here = null;
    turn("both");
    say("as it was first");
  }

  // ---- light: what a box is joined with stands out

  function light(at) {
    svg.classList.toggle("lit", at !== null);
    if (at === null) return;
    const near = new Set([at]);
    drawn.arrows.forEach((arrow, place) => {
      const isNear = arrow.used === at || arrow.user === at;
      drawn.lines[place].classList.toggle("near", isNear);
      if (isNear) near.add(arrow.used).add(arrow.user);
    });
    drawn.elements.forEach((each, place) => each.classList.toggle("near", near.has(place)));
  }

  // ---- size and place

  function zoom(scale, around) {
    const before = state.scale;
    state.scale = Math.min(3, Math.max(0.1, scale));
    const { width, height } = drawn.layout;
    svg.setAttribute("width", width * state.scale);
    svg.setAttribute("height", height * state.scale);
    const grown = state.scale / before;
    const [x, y] = around ?? [view.clientWidth / 2, view.clientHeight / 2];
    view.scrollLeft = (view.scrollLeft + x) * grown - x;
    view.scrollTop = (view.scrollTop + y) * grown - y;
  }

  function fit() {
    zoom(Math.min(1, view.clientWidth / drawn.layout.width));
  }

  function move(key) {
    const from = drawn.layout.places[find(state.here) ?? 0];
    const [dx, dy] = { ArrowRight: [1, 0], ArrowLeft: [-1, 0], ArrowDown: [0, 1], ArrowUp: [0, -1] }[key];
    let best = null, nearest = Infinity;
    drawn.layout.places.forEach((to, at) => {
      const along = (to.x - from.x) * dx + (to.y - from.y) * dy;
      const across = Math.abs((to.x - from.x) * dy) + Math.abs((to.y - from.y) * dx);
      if (along > 0 && along + across * 3 < nearest) [best, nearest] = [at, along + across * 3];
    });
    if (best !== null) enter(best);
  }

  // ---- controls

  const view = document.createElement("div");
  view.className = "graph-view";
  const bar = document.createElement("div");
  bar.className = "graph-controls";
  bar.setAttribute("role", "toolbar");
  bar.setAttribute("aria-label", "Graph");
  const said = document.createElement("span");
  said.className = "graph-said";
  said.setAttribute("role", "status");
  const say = (text) => { said.textContent = text; };
  const sides = [["both", "Both"], ["old", "Before"], ["new", "After"]].map(([side, label]) =>
    control(label, () => turn(side), { "data-side": side, "aria-pressed": String(side === "both") }));
  if ([...nodes, ...edges].some((each) => each.old !== each.new)) {
    const choice = document.createElement("span");
    choice.setAttribute("role", "group");
    choice.setAttribute("aria-label", "What is shown");
    choice.append(...sides);
    bar.append(choice);
  }
  const sizes = document.createElement("span");
  sizes.setAttribute("role", "group");
  sizes.setAttribute("aria-label", "Size");
  sizes.append(
    control("−", () => zoom(state.scale / 1.25), { "aria-label": "Smaller" }),
    control("+", () => zoom(state.scale * 1.25), { "aria-label": "Larger" }),
    control("Fit", fit, { "aria-label": "Fit the width" }),
  );
  bar.append(sizes, control("Start over", reset), said);
  root.prepend(bar);
  svg.replaceWith(view);
  view.append(svg);
  svg.setAttribute("role", "group");
  say("Arrow keys go from box to box, Enter opens or chooses; Ctrl and the wheel zoom.");

  const boxAt = (event) => drawn.elements.indexOf(event.target.closest?.(".box"));
  svg.addEventListener("click", (event) => {
    const at = boxAt(event);
    if (at >= 0) {
      enter(at);
      act(at);
    }
  });
  svg.addEventListener("keydown", (event) => {
    const at = boxAt(event);
    if (at < 0 || event.ctrlKey || event.altKey || event.metaKey) return;
    if (event.key === "Enter" || event.key === " ") act(at);
    else if (event.key.startsWith("Arrow")) move(event.key);
    else if (event.key === "Home") enter(0);
    else if (event.key === "End") enter(drawn.boxes.length - 1);
    else return;
    event.preventDefault();
  });
  for (const [name, isOut] of [["pointerover", false], ["focusin", false], ["pointerout", true],
    ["focusout", true]]) {
    svg.addEventListener(name, (event) => {
      const at = boxAt(event);
      const focused = isOut ? drawn.elements.indexOf(document.activeElement) : at;
      if (at >= 0) light(focused < 0 ? null : focused);
    });
  }
  view.addEventListener("wheel", (event) => {
    if (!event.ctrlKey) return;
    event.preventDefault();
    const frame = view.getBoundingClientRect();
    zoom(state.scale * (event.deltaY < 0 ? 1.1 : 1 / 1.1),
      [event.clientX - frame.left, event.clientY - frame.top]);
  }, { passive: false });
  let held = null;
  view.addEventListener("pointerdown", (event) => {
    if (event.button !== 0 || boxAt(event) >= 0 || event.pointerType === "touch") return;
    held = [event.clientX + view.scrollLeft, event.clientY + view.scrollTop];
    view.setPointerCapture(event.pointerId);
  });
  view.addEventListener("pointermove", (event) => {
    if (held) [view.scrollLeft, view.scrollTop] = [held[0] - event.clientX, held[1] - event.clientY];
  });
  for (const name of ["pointerup", "pointercancel"]) view.addEventListener(name, () => { held = null; });

  drawn.layout = { width: svg.viewBox.baseVal.width, height: svg.viewBox.baseVal.height };
  state.scale = Math.min(1, Math.max(0.7, view.clientWidth / drawn.layout.width)) || 1;
  draw();
  return { show };
}
