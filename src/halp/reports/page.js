"use strict";
// The first error stays readable in the page itself: a report is often opened far from any console.
addEventListener("error", (event) => (document.documentElement.dataset.error ??= event.message));
addEventListener("unhandledrejection", (event) => (document.documentElement.dataset.error ??= String(event.reason)));

addEventListener("DOMContentLoaded", () => {
  const svgNames = "http://www.w3.org/2000/svg";
  const tip = document.body.appendChild(document.createElement("div"));
  tip.className = "tip";
  tip.hidden = true;

  function placeTip(event) {
    tip.hidden = false;
    const box = tip.getBoundingClientRect();
    const left = event.clientX + 16 + box.width > innerWidth ? event.clientX - box.width - 12 : event.clientX + 16;
    const top = Math.min(event.clientY + 14, innerHeight - box.height - 6);
    tip.style.transform = `translate(${Math.max(4, left)}px, ${Math.max(4, top)}px)`;
  }

  const short = (value) => String(Number(value.toPrecision(5))).replace("-", "−");

  function addRow(series, text) {
    const row = tip.appendChild(document.createElement("div"));
    const dot = row.appendChild(document.createElement("i"));
    dot.style.setProperty("--c", getComputedStyle(series).getPropertyValue("--c"));
    row.append(text);
  }

  // Native titles become our own tooltip, at once and not after a second.
  function useTitles(chart) {
    const words = new WeakMap();
    for (const title of chart.querySelectorAll("title")) {
      words.set(title.parentNode, title.textContent);
      title.remove();
    }
    for (const mark of chart.querySelectorAll("[title]")) {
      words.set(mark, mark.title);
      mark.removeAttribute("title");
    }
    chart.addEventListener("pointermove", (event) => {
      let mark = event.target;
      while (mark !== chart && !words.has(mark)) mark = mark.parentNode;
      if (mark === chart) {
        if (!chart.dataset.plot) tip.hidden = true;
        return;
      }
      tip.textContent = words.get(mark);
      placeTip(event);
    });
    chart.addEventListener("pointerleave", () => (tip.hidden = true));
  }

  // Pointing at a key lights its series up; a click keeps it lit until the next click.
  function useKeys(chart) {
    let kept = null;
    const light = (series) => {
      chart.classList.toggle("focus", series !== null);
      for (const part of chart.querySelectorAll("[data-series]")) part.classList.toggle("lit", part.dataset.series === series);
    };
    for (const key of chart.querySelectorAll(".key")) {
      const series = key.dataset.series;
      key.addEventListener("pointerenter", () => light(series));
      key.addEventListener("pointerleave", () => light(kept));
      key.addEventListener("click", () => light((kept = kept === series ? null : series)));
    }
  }

  function useCross(chart) {
    const [x0, x1, left, right, y0, y1, bottom, top] = JSON.parse(chart.dataset.plot);
    const px = (x) => left + ((x - x0) / (x1 - x0)) * (right - left);
    const py = (y) => bottom + ((y - y0) / (y1 - y0)) * (top - bottom);
    const names = Array.from(chart.querySelectorAll(".key"), (key) => key.textContent);
    const curves = Array.from(chart.querySelectorAll("[data-points]"), (group) => ({
      group,
      name: names[group.dataset.series],
      points: JSON.parse(group.dataset.points),
    })).filter((curve) => curve.points.length);
    const layer = chart.appendChild(document.createElementNS(svgNames, "g"));
    const nearest = (points, x) => points.reduce((best, point) => (Math.abs(px(point[0]) - x) < Math.abs(px(best[0]) - x) ? point : best));
    const clear = () => {
      layer.replaceChildren();
      tip.hidden = true;
    };
    chart.addEventListener("pointermove", (event) => {
      const place = new DOMPoint(event.clientX, event.clientY).matrixTransform(chart.getScreenCTM().inverse());
      const inside = place.x > left - 8 && place.x < right + 8 && place.y > top - 8 && place.y < bottom + 8;
      if (!inside || !curves.length) return clear();
      const x = nearest(curves.map((curve) => nearest(curve.points, place.x)), place.x)[0];
      const line = document.createElementNS(svgNames, "path");
      line.setAttribute("class", "cross");
      line.setAttribute("d", `M${px(x)},${top}V${bottom}`);
      layer.replaceChildren(line);
      tip.textContent = `${chart.dataset.x || "x"} ${short(x)}`;
      for (const curve of curves) {
        const point = nearest(curve.points, px(x));
        if (Math.abs(px(point[0]) - px(x)) > 1.5) continue;
        addRow(curve.group, `${curve.name}: ${short(point[1])}`);
        if (py(point[1]) < top - 6 || py(point[1]) > bottom + 6) continue;
        const ring = document.createElementNS(svgNames, "circle");
        ring.setAttribute("class", "ring");
        ring.setAttribute("style", curve.group.getAttribute("style"));
        ring.setAttribute("r", 5);
        ring.setAttribute("cx", px(point[0]));
        ring.setAttribute("cy", py(point[1]));
        layer.append(ring);
      }
      placeTip(event);
    });
    chart.addEventListener("pointerleave", clear);
  }

  for (const chart of document.querySelectorAll(".halp-chart")) {
    useTitles(chart);
    useKeys(chart);
    if (chart.dataset.plot) useCross(chart);
  }
});
