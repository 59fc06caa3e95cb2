/* A page that is opened from a folder may start no Worker, and the search is one. Here its script runs in a hidden frame. */
"use strict";
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(address) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.append(frame);
      const inside = frame.contentWindow;
      inside.postMessage = data => this.dispatchEvent(new MessageEvent("message", { data }));
      const script = inside.document.createElement("script");
      script.src = address;
      this.ready = new Promise(resolve => script.addEventListener("load", resolve));
      this.frame = frame;
      inside.document.body.append(script);
    }
    postMessage(data) {
      this.ready.then(() => {
        const inside = this.frame.contentWindow;
        inside.dispatchEvent(new inside.MessageEvent("message", { data: structuredClone(data) }));
      });
    }
    terminate() {
      this.frame.remove();
    }
  };
}
