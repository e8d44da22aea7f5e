// Draws people: one frame of a clip on a canvas. A clip is { shape: [T, P, V], flat, radius, half, joints } or has at(frame).
const ABSENT = -32768;
const SCALE = 32767;

export function readColours(node) {
  const style = getComputedStyle(node);
  const colours = {};
  for (const name of ["left", "right", "middle", "left-2", "right-2", "middle-2", "hair", "soft", "heat"]) colours[name] = style.getPropertyValue(`--${name}`).trim();
  return colours;
}

// Where the joints of a frame are: an array and the place of its first number; null while they are on their way.
function locate(clip, frame) {
  if (clip.at) return clip.at(frame);
  return { joints: clip.joints, first: frame * clip.shape[1] * clip.shape[2] * 3 };
}

// Middle of the first person who is there, so that the camera can walk along.
function middleOf(place, persons, count) {
  for (let person = 0; person < persons; person++) {
    let [x, y, seen] = [0, 0, 0];
    for (let joint = 0; joint < count; joint++) {
      const i = place.first + (person * count + joint) * 3;
      if (place.joints[i] === ABSENT) continue;
      x += place.joints[i] / SCALE;
      y += place.joints[i + 1] / SCALE;
      seen++;
    }
    if (seen) return [x / seen, y / seen];
  }
  return null;
}

// options: ghosts (how many earlier frames to show), heat (0 … 1 for every joint), follow (walk along), reach (of a body)
export function paint(canvas, clip, frame, view, body, colours, options = {}) {
  const pen = canvas.getContext("2d");
  const { width, height } = canvas;
  const [, persons, joints] = clip.shape;
  const [yaw, pitch] = clip.flat ? [0, 0] : [view.yaw, view.pitch];
  const [cy, sy, cp, sp] = [Math.cos(yaw), Math.sin(yaw), Math.cos(pitch), Math.sin(pitch)];
  pen.clearRect(0, 0, width, height);
  pen.lineCap = "round";
  const place = persons ? locate(clip, frame) : null;
  const note = (text) => {
    pen.fillStyle = colours.soft;
    pen.font = `${Math.max(11, Math.min(15, width / 18))}px system-ui, sans-serif`;
    pen.textAlign = "center";
    pen.fillText(text, width / 2, height / 2);
  };
  if (!place) return note(persons ? "loading" : "absent");
  const middle = options.follow && !clip.flat ? middleOf(place, persons, joints) ?? [0, 0] : [0, 0];
  const radius = options.follow && !clip.flat ? Math.min(clip.radius, options.reach ?? clip.half) : clip.radius;
  const tall = Math.max(0.05, clip.half * Math.abs(cp) + radius * Math.abs(sp) * 0.6);
  const zoom = Math.min((width * 0.47) / Math.max(0.05, radius), (height * 0.45) / tall) * (view.zoom ?? 1);
  const project = (x, y, z) => {
    const across = (x - middle[0]) * cy - (y - middle[1]) * sy;
    const away = (x - middle[0]) * sy + (y - middle[1]) * cy;
    return [width / 2 + across * zoom, height / 2 - (z * cp + away * sp) * zoom, away * cp - z * sp];
  };
  const thick = Math.max(1.5, Math.min(width, height * 1.1) / 54);
  floor(pen, clip, project, thick, colours, radius, middle);
  for (let back = options.ghosts ?? 0; back > 0; back--) {
    const earlier = frame - back * 4;
    const then = earlier >= 0 ? locate(clip, earlier) : null;
    if (then) person(then, 0.06 + 0.16 * (1 - back / (options.ghosts + 1)), true);
  }
  const there = person(place, 1, false);
  if (!there) note("absent");

  function person(place, alpha, plain) {
    const strokes = [];
    for (let person = 0; person < persons; person++) {
      const tone = person ? "-2" : "";
      const places = Array.from({ length: joints }, (_, joint) => {
        const i = place.first + (person * joints + joint) * 3;
        return place.joints[i] === ABSENT ? null : project(place.joints[i] / SCALE, place.joints[i + 1] / SCALE, place.joints[i + 2] / SCALE);
      });
      const colour = (joint) => (plain ? colours.soft : colours[{ l: "left", r: "right", m: "middle" }[body.sides[joint]] + tone]);
      for (const [child, parent] of body.bones) {
        if (!places[child] || !places[parent]) continue;
        // A bone that joins the middle to a side, such as a collar bone, belongs to that side.
        const owner = body.sides[child] === "m" ? parent : child;
        strokes.push({ depth: (places[child][2] + places[parent][2]) / 2, from: places[parent], to: places[child], colour: colour(owner) });
      }
      if (plain) continue;
      places.forEach((place, joint) => {
        if (!place) return;
        const heat = options.heat && !person ? options.heat(joint) : 0;
        strokes.push({ depth: place[2] - 0.01, dot: place, radius: joint === body.head ? thick * 2.1 : thick * 0.8, colour: colour(joint) });
        if (heat > 0.02) strokes.push({ depth: place[2] - 0.02, dot: place, radius: thick * (0.9 + 2.4 * heat), colour: colours.heat, alpha: 0.25 + 0.6 * heat });
      });
    }
    strokes.sort((a, b) => b.depth - a.depth);
    for (const stroke of strokes) {
      pen.globalAlpha = alpha * (stroke.alpha ?? 1);
      pen.beginPath();
      const near = Math.max(0.6, Math.min(1.4, 1 - stroke.depth * 0.5));
      if (stroke.dot) {
        pen.fillStyle = stroke.colour;
        pen.arc(stroke.dot[0], stroke.dot[1], stroke.radius * near, 0, 7);
        pen.fill();
      } else {
        pen.strokeStyle = stroke.colour;
        pen.lineWidth = thick * near * (plain ? 0.7 : 1);
        pen.moveTo(stroke.from[0], stroke.from[1]);
        pen.lineTo(stroke.to[0], stroke.to[1]);
        pen.stroke();
      }
    }
    pen.globalAlpha = 1;
    return strokes.length > 0;
  }
}

function floor(pen, clip, project, thick, colours, radius, middle) {
  const reach = radius * 0.95;
  const step = reach / 2;
  pen.strokeStyle = colours.hair;
  pen.lineWidth = Math.max(1, thick / 3);
  pen.beginPath();
  const line = (from, to) => {
    pen.moveTo(from[0], from[1]);
    pen.lineTo(to[0], to[1]);
  };
  if (clip.flat) line(project(-reach, 0, -clip.half), project(reach, 0, -clip.half));
  else {
    const [x, y] = middle.map((value) => Math.round(value / step) * step);
    for (let i = -2; i <= 2; i++) {
      line(project(x + i * step, y - reach, -clip.half), project(x + i * step, y + reach, -clip.half));
      line(project(x - reach, y + i * step, -clip.half), project(x + reach, y + i * step, -clip.half));
    }
  }
  pen.stroke();
}

// How far everybody reaches from the middle of the first person, from some frames of a clip.
export function bodyReach(joints, shape) {
  const [frames, persons, count] = shape;
  let reach = 0;
  for (let frame = 0; frame < frames; frame += Math.max(1, Math.floor(frames / 20))) {
    const place = { joints, first: frame * persons * count * 3 };
    const middle = middleOf(place, 1, count);
    if (!middle) continue;
    for (let joint = 0; joint < persons * count; joint++) {
      const i = place.first + joint * 3;
      if (joints[i] !== ABSENT) reach = Math.max(reach, Math.hypot(joints[i] / SCALE - middle[0], joints[i + 1] / SCALE - middle[1]));
    }
  }
  return reach;
}
