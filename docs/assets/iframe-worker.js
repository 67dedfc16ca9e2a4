// Search in a site that is opened as a file: browsers start no worker there, so a hidden frame
// does its work. mkdocs-material would load such a script from another server.
"use strict";

(() => {
  if (location.protocol !== "file:") return;

  // In the frame: loads scripts one after the other, as a worker does, but not at once.
  function importScripts(...urls) {
    return urls.reduce((before, url) => before.then(() => new Promise((resolve, reject) => {
      const script = document.createElement("script");
      script.src = url;
      script.onload = resolve;
      script.onerror = reject;
      document.body.appendChild(script);
    })), Promise.resolve());
  }

  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.appendChild(frame);
      this.frame = frame;
      this.inside = frame.contentWindow;
      this.onmessage = null;
      const inner = this.inside.document;
      inner.open();
      inner.write(
        `<html><body><script>postMessage = parent.postMessage.bind(parent);` +
        `importScripts = ${importScripts};</script><script src="${url}"></script></body></html>`);
      inner.close();
      this.ready = new Promise((resolve) => { this.inside.onload = resolve; });
      this.receive = (event) => {
        if (event.source !== this.inside) return;
        const message = new MessageEvent("message", { data: event.data });
        this.dispatchEvent(message);
        if (this.onmessage) this.onmessage(message);
      };
      window.addEventListener("message", this.receive);
    }

    postMessage(data) {
      this.ready.then(() => this.inside.dispatchEvent(new MessageEvent("message", { data })));
    }

    terminate() {
      this.frame.remove();
      window.removeEventListener("message", this.receive);
    }
  };
})();
