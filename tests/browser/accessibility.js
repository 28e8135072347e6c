// What of a page a person with low sight could not read: texts and borders of controls whose colour
// is too near that of what is behind: `faults` is empty where all is well.
() => {
  const parse = (text) => {
    const [r, g, b, a = 1] = text.match(/[\d.]+/g).map(Number);
    return { r, g, b, a };
  };
  const light = ({ r, g, b }) => {
    const [x, y, z] = [r, g, b].map((each) => {
      const part = each / 255;
      return part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
    });
    return 0.2126 * x + 0.7152 * y + 0.0722 * z;
  };
  const ratio = (one, other) => {
    const [high, low] = [light(one), light(other)].sort((a, b) => b - a);
    return (high + 0.05) / (low + 0.05);
  };
  const behind = (element) => {
    for (let at = element; at; at = at.parentElement) {
      const found = parse(getComputedStyle(at).backgroundColor);
      if (found.a === 1) return found;
      if (found.a > 0) throw new Error(`half transparent: ${at.className}`);
    }
    return { r: 255, g: 255, b: 255 };
  };
  const found = new Map();
  const note = (element, kind, value, least) => {
    if (value < least) found.set(`${kind} ${element.tagName} ${element.getAttribute('class')} ${value.toFixed(2)}`, 1);
    pairs += 1;
    lowest[kind] = Math.min(lowest[kind] ?? Infinity, value);
  };
  let pairs = 0;
  const lowest = {};
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const element = walker.currentNode.parentElement;
    if (!walker.currentNode.data.trim() || !element.checkVisibility()) continue;
    if (element.closest("title, desc, script, style, noscript")) continue;
    if (element.closest("svg")) {
      const area = element.closest(".box, .legend > g > g") ?? element.closest("svg").querySelector(".paper");
      note(element, "picture", ratio(parse(getComputedStyle(element).fill), parse(getComputedStyle(area).fill)), 4.5);
      continue;
    }
    note(element, "text", ratio(parse(getComputedStyle(element).color), behind(element)), 4.5);
  }
  for (const control of document.querySelectorAll("button, input, select")) {
    const style = getComputedStyle(control);
    if (!control.checkVisibility() || style.borderTopWidth === "0px") continue;
    note(control, "border", ratio(parse(style.borderTopColor), behind(control.parentElement)), 3);
  }
  for (const box of document.querySelectorAll("svg .box, svg .arrow")) {
    const paper = box.closest("svg").querySelector(".paper");
    note(box, "line", ratio(parse(getComputedStyle(box).stroke), parse(getComputedStyle(paper).fill)), 3);
  }
  return { pairs, lowest, faults: [...found.keys()] };
}
