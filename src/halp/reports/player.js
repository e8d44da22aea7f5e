"use strict";
(() => {
  const ABSENT = -32768;
  const START = { yaw: -0.45, pitch: 0.16 };
  const RATE = 30;
  const ICONS = { play: "M3 1l10 6-10 6z", pause: "M2 1h4v12H2zM8 1h4v12H8z", back: "M10 1L3 7l7 6z", next: "M4 1l7 6-7 6z" };

  function make(parent, element, kind, text) {
    const node = parent.appendChild(document.createElement(element));
    if (kind) node.className = kind;
    if (text) node.textContent = text;
    return node;
  }

  function button(parent, icon, label, act) {
    const node = make(parent, "button");
    node.type = "button";
    node.innerHTML = `<svg viewBox="0 0 14 14" aria-hidden="true"><path d="${ICONS[icon]}"/></svg>`;
    node.title = label;
    node.setAttribute("aria-label", label);
    node.addEventListener("click", act);
    return node;
  }

  function unpack(clip) {
    if (typeof clip.joints === "string") clip.joints = new Int16Array(Uint8Array.from(atob(clip.joints), (c) => c.charCodeAt(0)).buffer);
    return clip;
  }

  function start(root) {
    const data = JSON.parse(root.querySelector('script[type="application/json"]').textContent);
    const state = { row: 0, frame: 0, steps: 0, playing: !matchMedia("(prefers-reduced-motion: reduce)").matches, speed: 1, ...START };
    (window.__player ??= []).push(state);
    if (!data.rows.length) return void make(root, "p", "", "no clips to show");
    let cards = [], length = 1, colours = {}, waiting = false, visible = true;

    const bar = make(root, "div", "bar");
    const chooser = make(bar, "span");
    button(chooser, "back", "previous query", () => choose(state.row - 1));
    const select = make(chooser, "select", "row");
    select.setAttribute("aria-label", "query");
    data.rows.forEach((row, i) => make(select, "option", "", `${i + 1}. ${row[0].title}`).setAttribute("value", i));
    select.addEventListener("change", () => choose(Number(select.value)));
    button(chooser, "next", "next query", () => choose(state.row + 1));
    if (data.rows.length < 2) chooser.style.display = "none";
    if (data.rows.length > 8) {
      const search = make(chooser, "input", "search");
      Object.assign(search, { type: "search", placeholder: "find a clip" });
      search.setAttribute("aria-label", "find a clip by its name");
      search.addEventListener("input", () => {
        const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
        const fitting = data.rows.map((row, i) => i).filter((i) => words.every((word) => data.rows[i][0].title.toLowerCase().includes(word)));
        select.replaceChildren();
        fitting.slice(0, 2000).forEach((i) => make(select, "option", "", `${i + 1}. ${data.rows[i][0].title}`).setAttribute("value", i));
        search.setAttribute("aria-invalid", String(!fitting.length));
        if (fitting.length && !fitting.includes(state.row)) choose(fitting[0]);
        else select.value = state.row;
      });
    }
    const time = make(bar, "span", "time");
    const play = button(time, "pause", "pause", () => setPlaying(!state.playing));
    const slider = make(time, "input");
    Object.assign(slider, { type: "range", min: 0, step: 1, value: 0 });
    slider.setAttribute("aria-label", "frame");
    slider.addEventListener("input", () => {
      setPlaying(false);
      state.frame = Number(slider.value);
      show();
    });
    const counter = make(time, "output");
    const speeds = make(bar, "select");
    speeds.setAttribute("aria-label", "speed");
    for (const speed of [0.25, 0.5, 1, 2]) {
      const option = make(speeds, "option", "", `${speed}×`);
      option.value = speed;
      option.selected = speed === 1;
    }
    speeds.addEventListener("change", () => (state.speed = Number(speeds.value)));
    const stage = make(root, "div", "stage");
    const limbs = make(root, "div", "limbs");
    for (const [name, colour] of [["left", "--left"], ["right", "--right"], ["middle", "--middle"]]) {
      const key = make(limbs, "span");
      make(key, "i").style.background = `var(${colour})`;
      key.append(name);
    }
    for (const [mood, sign, words, good] of [["good", "✓", "same class", true], ["bad", "✗", "other class", false]]) {
      if (!data.rows.some((row) => row.some((clip, place) => place && clip.good === good))) continue;
      const key = make(limbs, "span");
      make(key, "b", mood, sign);
      key.append(words);
    }
    if (data.rows.some((row) => row.some((clip) => !clip.flat))) make(limbs, "span", "", "drag to turn, double-click to face the front");

    function setPlaying(on) {
      state.playing = on;
      play.querySelector("path").setAttribute("d", ICONS[on ? "pause" : "play"]);
      play.title = on ? "pause" : "play";
      play.setAttribute("aria-label", play.title);
    }

    function choose(row) {
      state.row = (row + data.rows.length) % data.rows.length;
      state.frame = 0;
      select.value = state.row;
      stage.replaceChildren();
      cards = data.rows[state.row].map((clip, place) => {
        const mood = place === 0 ? "query" : clip.good === true ? "good" : clip.good === false ? "bad" : "";
        const role = clip.role ?? (place === 0 ? "query" : `neighbour ${place} ${{ good: "✓", bad: "✗" }[mood] ?? ""}`);
        const card = make(stage, "div", `card ${mood}`);
        const canvas = make(card, "canvas");
        canvas.tabIndex = 0;
        canvas.setAttribute("role", "img");
        canvas.setAttribute("aria-label", `${role}: ${clip.title}`);
        const caption = make(card, "div", "caption");
        make(caption, "span", "role", role);
        caption.append(clip.title);
        if (!clip.flat) turnable(canvas);
        return { clip: unpack(clip), canvas };
      });
      length = Math.max(...cards.map((card) => card.clip.shape[0]));
      slider.max = length - 1;
      slider.disabled = length < 2;
      resize();
      show();
    }

    function turn(yaw, pitch) {
      state.yaw += yaw;
      state.pitch = Math.max(-1.5, Math.min(1.5, state.pitch + pitch));
      refresh();
    }

    function turnable(canvas) {
      let last = null;
      canvas.addEventListener("pointerdown", (event) => {
        last = event;
        canvas.setPointerCapture(event.pointerId);
      });
      canvas.addEventListener("pointermove", (event) => {
        if (!last) return;
        turn((event.clientX - last.clientX) * 0.012, (event.clientY - last.clientY) * 0.008);
        last = event;
      });
      for (const end of ["pointerup", "pointercancel"]) canvas.addEventListener(end, () => (last = null));
      canvas.addEventListener("dblclick", () => {
        state.yaw = state.pitch = 0;
        refresh();
      });
      canvas.addEventListener("keydown", (event) => {
        const way = { ArrowLeft: [-0.15, 0], ArrowRight: [0.15, 0], ArrowUp: [0, -0.1], ArrowDown: [0, 0.1] }[event.key];
        if (!way) return;
        turn(...way);
        event.preventDefault();
      });
    }

    function resize() {
      const dense = Math.min(window.devicePixelRatio || 1, 2);
      for (const { canvas } of cards) {
        canvas.width = Math.max(1, Math.round(canvas.clientWidth * dense));
        canvas.height = Math.max(1, Math.round(canvas.clientHeight * dense));
      }
      refresh();
    }

    function recolour() {
      const style = getComputedStyle(root);
      for (const name of ["left", "right", "middle", "left-2", "right-2", "middle-2", "hair", "stage", "soft"]) {
        colours[name] = style.getPropertyValue(`--${name}`).trim();
      }
      refresh();
    }

    function paint({ clip, canvas }, frame) {
      const pen = canvas.getContext("2d");
      const { width, height } = canvas;
      const [, persons, joints] = clip.shape;
      const yaw = clip.flat ? 0 : state.yaw;
      const pitch = clip.flat ? 0 : state.pitch;
      const [cy, sy, cp, sp] = [Math.cos(yaw), Math.sin(yaw), Math.cos(pitch), Math.sin(pitch)];
      const tall = Math.max(0.05, clip.half * Math.abs(cp) + clip.radius * Math.abs(sp) * 0.6);
      const zoom = Math.min((width * 0.49) / Math.max(0.05, clip.radius), (height * 0.45) / tall);
      const project = (x, y, z) => {
        const across = x * cy - y * sy;
        const away = x * sy + y * cy;
        return [width / 2 + across * zoom, height / 2 - (z * cp + away * sp) * zoom, away * cp - z * sp];
      };
      const thick = Math.max(1.5, width / 54);
      pen.clearRect(0, 0, width, height);
      pen.lineCap = "round";
      floor(pen, clip, project, thick);
      const strokes = [];
      for (let person = 0; person < persons; person++) {
        const tone = person ? "-2" : "";
        const first = (frame * persons + person) * joints;
        const at = (joint) => {
          const i = (first + joint) * 3;
          return clip.joints[i] === ABSENT ? null : project(clip.joints[i] / 32767, clip.joints[i + 1] / 32767, clip.joints[i + 2] / 32767);
        };
        const colour = (joint) => colours[{ l: "left", r: "right", m: "middle" }[data.sides[joint]] + tone];
        const places = Array.from({ length: joints }, (_, joint) => at(joint));
        for (const [child, parent] of data.bones) {
          if (!places[child] || !places[parent]) continue;
          // A bone that joins the middle to a side, such as a collar bone, belongs to that side.
          const owner = data.sides[child] === "m" ? parent : child;
          strokes.push({ depth: (places[child][2] + places[parent][2]) / 2, from: places[parent], to: places[child], colour: colour(owner) });
        }
        places.forEach((place, joint) => {
          if (place) strokes.push({ depth: place[2] - 0.01, dot: place, radius: joint === data.head ? thick * 2.1 : thick * 0.8, colour: colour(joint) });
        });
      }
      strokes.sort((a, b) => b.depth - a.depth);
      for (const stroke of strokes) {
        pen.beginPath();
        const near = Math.max(0.6, Math.min(1.4, 1 - stroke.depth * 0.5));
        if (stroke.dot) {
          pen.fillStyle = stroke.colour;
          pen.arc(stroke.dot[0], stroke.dot[1], stroke.radius * near, 0, 7);
          pen.fill();
        } else {
          pen.strokeStyle = stroke.colour;
          pen.lineWidth = thick * near;
          pen.moveTo(stroke.from[0], stroke.from[1]);
          pen.lineTo(stroke.to[0], stroke.to[1]);
          pen.stroke();
        }
      }
    }

    function floor(pen, clip, project, thick) {
      if (!clip.shape[1]) {
        pen.fillStyle = colours.soft;
        pen.font = `${Math.max(12, thick * 3.2)}px system-ui, sans-serif`;
        pen.textAlign = "center";
        return pen.fillText("no person", pen.canvas.width / 2, pen.canvas.height / 2);
      }
      const reach = clip.radius * 0.9;
      pen.strokeStyle = colours.hair;
      pen.lineWidth = Math.max(1, thick / 3);
      pen.beginPath();
      for (let i = clip.flat ? 0 : -2; i <= (clip.flat ? 0 : 2); i++) {
        const side = (i / 2) * reach;
        for (const [x, y] of clip.flat ? [[1, 0]] : [[1, 0], [0, 1]]) {
          const from = project(x ? -reach : side, x ? side : -reach, -clip.half);
          const to = project(x ? reach : side, x ? side : reach, -clip.half);
          pen.moveTo(from[0], from[1]);
          pen.lineTo(to[0], to[1]);
        }
      }
      pen.stroke();
    }

    // Painting waits for the screen and is done once, however much has changed since.
    function refresh() {
      if (!waiting && visible) requestAnimationFrame(paintAll);
      waiting ||= visible;
    }

    function paintAll() {
      waiting = false;
      // A shorter clip starts over while the longest still runs.
      for (const card of cards) paint(card, Math.floor(state.frame) % card.clip.shape[0]);
    }

    function show() {
      const whole = Math.floor(state.frame);
      root.dataset.frame = whole;
      root.dataset.steps = state.steps;
      counter.textContent = `${whole + 1} / ${length}`;
      slider.value = whole;
      refresh();
    }

    let before = performance.now();
    function step() {
      const now = performance.now();
      const passed = Math.min(250, now - before);
      before = now;
      if (!state.playing || length < 2) return;
      const shown = Math.floor(state.frame);
      state.frame = (state.frame + (passed / 1000) * (data.rate ?? RATE) * state.speed) % length;
      state.steps += 1;
      if (Math.floor(state.frame) !== shown) show();
    }

    new ResizeObserver(resize).observe(stage);
    new IntersectionObserver((entries) => {
      visible = entries[entries.length - 1].isIntersecting;
      refresh();
    }).observe(stage);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", recolour);
    matchMedia("print").addEventListener("change", recolour);
    setPlaying(state.playing);
    recolour();
    choose(0);
    setInterval(step, 1000 / RATE);
  }

  // Every player brings this script along; each copy starts the players that stand before it and have not been started.
  for (const root of document.querySelectorAll(".halp-player:not([data-started])")) {
    root.dataset.started = "";
    start(root);
  }
})();
