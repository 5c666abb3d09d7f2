// Opened from the disk, a page may not start a worker: the search runs in a hidden frame instead. The theme knows such
// a Worker by window.IFrameWorker, and would fetch one from another host.
if (location.protocol === "file:")
  window.Worker = window.IFrameWorker = class extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      this.ready = new Promise(loaded => (frame.onload = loaded)).then(() => frame.contentWindow);
      this.terminate = () => frame.remove();
      self.addEventListener("message", event => {
        if (event.source === frame.contentWindow) this.tell(event.data);
      });
      frame.srcdoc =
        `<script>postMessage = data => parent.postMessage(data, "*");
        importScripts = (...urls) => urls.reduce((before, src) => before.then(() => new Promise((done, failed) =>
          document.body.append(Object.assign(document.createElement("script"), {src, onload: done, onerror: failed})))),
          Promise.resolve());</${"script"}><body><script src="${url}"></${"script"}>`;
      document.body.append(frame);
    }
    tell(data) {
      const event = new MessageEvent("message", {data});
      this.dispatchEvent(event);
      this.onmessage?.(event);
    }
    postMessage(data) {
      this.ready.then(frame => frame.dispatchEvent(new frame.MessageEvent("message", {data})));
    }
  };
