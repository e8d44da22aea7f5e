// What stands before the webcam, or happens in a film of one's own: pictures go to the server, people and names come back.
import { useEffect, useRef, useState } from "preact/hooks";
import { api } from "./api.js";
import { Mini } from "./parts.jsx";
import * as s from "./state.js";

const WIDE = 320; // pixels that are sent
const PAUSE = 30; // milliseconds between an answer and the next picture

// Red, green and blue of what a video shows, as base64.
function grab(video, canvas) {
  const height = Math.round((WIDE * video.videoHeight) / video.videoWidth);
  Object.assign(canvas, { width: WIDE, height });
  const pen = canvas.getContext("2d", { willReadFrequently: true });
  pen.drawImage(video, 0, 0, WIDE, height);
  const { data } = pen.getImageData(0, 0, WIDE, height);
  const picture = new Uint8Array(WIDE * height * 3);
  for (let from = 0, to = 0; from < data.length; from += 4) {
    picture[to++] = data[from];
    picture[to++] = data[from + 1];
    picture[to++] = data[from + 2];
  }
  let text = "";
  for (let i = 0; i < picture.length; i += 32768) text += String.fromCharCode(...picture.subarray(i, i + 32768));
  return { width: WIDE, height, picture: btoa(text) };
}

function outline(canvas, { people, body }) {
  const { clientWidth: width, clientHeight: height } = canvas;
  Object.assign(canvas, { width, height });
  const pen = canvas.getContext("2d");
  const style = getComputedStyle(canvas);
  pen.lineWidth = 3;
  pen.lineCap = "round";
  for (const joints of people) {
    for (const [child, parent] of body.bones) {
      if (Math.min(joints[child][2], joints[parent][2]) < 0.3) continue;
      pen.strokeStyle = style.getPropertyValue({ l: "--left", r: "--right", m: "--middle" }[body.sides[child]]);
      pen.beginPath();
      for (const [x, y] of [joints[parent], joints[child]]) pen.lineTo(x * width, y * height);
      pen.stroke();
    }
  }
}

export function Camera() {
  const [video, over, small] = [useRef(), useRef(), useRef(document.createElement("canvas"))];
  const [source, setSource] = useState(null); // a stream of the camera, or the address of a film
  const [answer, setAnswer] = useState(null);
  const [problem, setProblem] = useState("");
  const open = async (get) => {
    setProblem("");
    setAnswer(null);
    try {
      setSource(await get());
    } catch (error) {
      setProblem(`The browser gives no camera (${error.message || error.name}). Allow it for this page, or choose a film.`);
    }
  };
  useEffect(() => {
    if (!source) return;
    let ended = false;
    const node = video.current;
    const began = performance.now();
    if (source instanceof MediaStream) node.srcObject = source;
    else node.src = source;
    node.play().catch(() => !ended && setProblem("The browser cannot play this film."));
    const look = async () => {
      if (ended) return;
      if (node.readyState >= 2 && node.videoWidth) {
        try {
          const found = await api.ask("camera", { ...grab(node, small.current), time: (performance.now() - began) / 1000 });
          if (ended) return;
          outline(over.current, found);
          setAnswer(found);
        } catch (error) {
          if (!ended) setProblem(error.message);
          return setSource(null);
        }
      }
      setTimeout(look, PAUSE);
    };
    look();
    return () => {
      ended = true;
      if (source instanceof MediaStream) source.getTracks().forEach((track) => track.stop());
      else URL.revokeObjectURL(source);
    };
  }, [source]);
  const film = (event) => {
    const file = event.currentTarget.files[0];
    if (file) open(() => URL.createObjectURL(file));
  };
  const few = s.facts.value.few;
  return (
    <>
      <h2>Camera <span class="soft">recognised as it comes</span></h2>
      {problem && <p class="error" role="alert">{problem}</p>}
      {source ? (
        <>
          <div class="camera"><video ref={video} muted playsInline loop aria-label="what the camera sees" /><canvas ref={over} aria-hidden="true" /></div>
          <Verdict answer={answer} few={few} />
          <div class="acts"><button type="button" onClick={() => setSource(null)}>Stop</button></div>
        </>
      ) : (
        <>
          <p class="soft">Stand so that all of you is in the picture. Pictures go to the explorer on this machine and nowhere else; none is kept.</p>
          <div class="acts">
            <button type="button" class="primary" onClick={() => open(() => navigator.mediaDevices.getUserMedia({ video: { width: 640 }, audio: false }))}>Start the camera</button>
            <label class="button">Choose a film<input type="file" accept="video/*" onChange={film} /></label>
          </div>
        </>
      )}
    </>
  );
}

function Verdict({ answer, few }) {
  if (!answer) return <p class="soft" role="status">looking …</p>;
  if (!answer.seen) return <p role="status">Nobody is in the picture.</p>;
  if (!answer.nearest) return <p class="soft" role="status">watching: {Math.round(answer.filled * 100)} %</p>;
  const { pose, recognition } = answer.milliseconds;
  return (
    <div data-seen>
      {few ? <p class="verdict" role="status">{answer.label ?? "none of these"} <span class="soft">{answer.label ? "" : `at best ${answer.best}, `}{Math.round(answer.probability * 100)} %</span></p> : <p class="soft">Label some movements of at least two classes, and the class is named here.</p>}
      <h2>Most alike</h2>
      <div class="grid small">{answer.nearest.map((hit, place) => <Mini key={place} row={hit.row} note={hit.similarity.toFixed(2)} />)}</div>
      <p class="soft small">{Math.round(pose)} ms for the pose, {Math.round(recognition)} ms for the rest.</p>
    </div>
  );
}
