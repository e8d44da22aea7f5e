// The page in a cell of a notebook: a frame whose questions travel to the kernel, and the answers back.
function render({ model, el }) {
  const view = Math.random();
  const waiting = new Map();
  let asked = 0;
  const take = (answer, buffers) => {
    if (answer.view !== view) return; // of the same widget in another cell
    waiting.get(answer.number)?.({ error: answer.error, body: buffers?.[0] });
    waiting.delete(answer.number);
  };
  model.on("msg:custom", take);
  const frame = document.createElement("iframe");
  frame.title = "halp explore";
  frame.allow = "camera";
  frame.style.cssText = `box-sizing: border-box; width: 100%; height: ${model.get("height")}px; border: 1px solid #8884; border-radius: 6px`;
  frame.halpKernel = (name, given) => new Promise((done) => {
    waiting.set(++asked, done);
    model.send({ view, number: asked, name, given });
  });
  frame.srcdoc = model.get("page");
  el.append(frame);
  return () => model.off("msg:custom", take);
}
export default { render };
