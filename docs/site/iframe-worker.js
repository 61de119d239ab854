// The theme's search runs in a worker, which no browser starts for a page that was opened as a file: there it
// runs in a frame. The theme would load such a stand-in from elsewhere, and finds nothing where there is no network.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.append(frame);
      const inner = frame.contentWindow;
      inner.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
      this.started = new Promise((started) => {
        const script = inner.document.createElement("script");
        script.src = url;
        script.onload = () => started(inner);
        inner.document.body.append(script);
      });
    }

    postMessage(data) {
      this.started.then((inner) => inner.dispatchEvent(new inner.MessageEvent("message", { data })));
    }
  };
}
