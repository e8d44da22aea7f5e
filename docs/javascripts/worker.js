// Pages opened from disk may not start workers: there the search runs in a hidden frame instead.
if (location.protocol === "file:") {
  window.IFrameWorker = class extends EventTarget {
    constructor(url) {
      super();
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      document.body.append(this.frame);
      const inner = this.frame.contentWindow;
      inner.postMessage = (data) => setTimeout(() => this.answer(new MessageEvent("message", { data })));
      inner.importScripts = (...urls) => Promise.all(urls.map((one) => this.load(one)));
      this.ready = this.load(url);
    }
    load(url) {
      const script = this.frame.contentDocument.createElement("script");
      script.src = new URL(url, document.baseURI).href;
      return new Promise((done, failed) => {
        script.onload = done;
        script.onerror = failed;
        this.frame.contentDocument.head.append(script);
      });
    }
    answer(event) {
      this.dispatchEvent(event);
      this.onmessage?.(event);
    }
    postMessage(data) {
      const { contentWindow } = this.frame;
      this.ready.then(() => contentWindow.dispatchEvent(new contentWindow.MessageEvent("message", { data })));
    }
    terminate() {
      this.frame.remove();
    }
  };
  window.Worker = window.IFrameWorker;
}
