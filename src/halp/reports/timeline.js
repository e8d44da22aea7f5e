"use strict";
(() => {
  function make(parent, element, kind, text) {
    const node = parent.appendChild(document.createElement(element));
    if (kind) node.className = kind;
    if (text) node.textContent = text;
    return node;
  }

  // The player that stands before the timeline in the page.
  function playerBefore(root) {
    const all = Array.from(document.querySelectorAll(".halp-player"));
    return all.filter((one) => one.compareDocumentPosition(root) & Node.DOCUMENT_POSITION_FOLLOWING).pop();
  }

  function niceStep(length) {
    const raw = length / 8;
    const power = 10 ** Math.floor(Math.log10(raw));
    return [1, 2, 5, 10].map((factor) => factor * power).find((step) => step >= raw);
  }

  function start(root) {
    const data = JSON.parse(root.querySelector('script[type="application/json"]').textContent);
    const length = Math.max(data.end - data.start, 1e-9);
    const share = (time) => ((time - data.start) / length) * 100;
    const colour = (node, label) => {
      const place = data.labels.indexOf(label);
      if (place < data.colours.length) node.style.setProperty("--c", `var(--c${data.colours[place]})`);
      else node.classList.add("faint");
    };
    const strip = make(root, "div", "strip");
    strip.tabIndex = 0;
    strip.setAttribute("role", "slider");
    strip.setAttribute("aria-label", "time");
    strip.setAttribute("aria-valuemin", data.start);
    strip.setAttribute("aria-valuemax", data.end);
    const parts = data.parts.map(([from, to, label, note]) => {
      const node = make(strip, "div", "part");
      node.style.left = `${share(from)}%`;
      node.style.width = `${share(to) - share(from)}%`;
      node.title = `${label}\n${from.toFixed(2)} – ${to.toFixed(2)} ${data.unit}${note ? `\n${note}` : ""}`;
      colour(node, label);
      if (share(to) - share(from) > 6) make(node, "span", "", label);
      return { node, from, to, label, note };
    });
    const cursor = make(strip, "div", "cursor");
    const ticks = make(root, "div", "ticks");
    const step = niceStep(length);
    for (let time = Math.ceil(data.start / step) * step; time <= data.end - step * 0.3; time += step) {
      const unit = ticks.childElementCount ? "" : ` ${data.unit}`;
      make(ticks, "span", "", `${Number(time.toFixed(6))}${unit}`).style.left = `${share(time)}%`;
    }
    const says = make(root, "div", "says");
    const keys = make(root, "div", "keys");
    for (const label of data.labels) {
      const key = make(keys, "span");
      colour(make(key, "i"), label);
      key.append(label);
    }
    const player = playerBefore(root);
    const slider = player?.querySelector('input[type="range"]');

    function show(time) {
      cursor.style.left = `calc(${share(time)}% - 1px)`;
      strip.setAttribute("aria-valuenow", time.toFixed(2));
      const now = parts.find((part) => time >= part.from && time < part.to);
      for (const part of parts) part.node.classList.toggle("now", part === now);
      says.textContent = `${time.toFixed(2)} ${data.unit}${now ? `: ${now.label}${now.note ? ` (${now.note})` : ""}` : ""}`;
    }

    function seek(time) {
      if (slider) {
        slider.value = Math.round(((time - data.start) / length) * (Number(slider.max) + 1) - 0.5);
        slider.dispatchEvent(new Event("input"));
      } else show(time);
    }

    const follow = () => show(data.start + ((Number(player.dataset.frame || 0) + 0.5) / (Number(slider.max) + 1)) * length);
    strip.addEventListener("pointerdown", (event) => {
      const box = strip.getBoundingClientRect();
      seek(data.start + ((event.clientX - box.left) / box.width) * length);
    });
    strip.addEventListener("keydown", (event) => {
      const way = { ArrowLeft: -0.01, ArrowRight: 0.01 }[event.key];
      if (!way) return;
      seek(Math.min(data.end, Math.max(data.start, Number(strip.getAttribute("aria-valuenow")) + way * length)));
      event.preventDefault();
    });
    if (slider) new MutationObserver(follow).observe(player, { attributes: true, attributeFilter: ["data-frame"] });
    if (slider) follow();
    else show(data.start);
  }

  for (const root of document.querySelectorAll(".halp-timeline:not([data-started])")) {
    root.dataset.started = "";
    start(root);
  }
})();
