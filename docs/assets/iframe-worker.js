// A worker in a hidden frame: browsers start no workers for pages that are opened from a folder.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.append(frame);
      this.inside = frame.contentWindow;
      this.inside.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
      this.inside.importScripts = (...scripts) =>
        scripts.reduce((done, script) => done.then(() => this.load(script)), Promise.resolve());
      this.ready = this.load(url);
    }
    load(url) {
      return new Promise((resolve, reject) => {
        const script = this.inside.document.createElement("script");
        script.onload = resolve;
        script.onerror = reject;
        script.src = new URL(url, location.href);
        this.inside.document.body.append(script);
      });
    }
    postMessage(data) {
      this.ready = this.ready.then(() => this.inside.dispatchEvent(new MessageEvent("message", { data })));
    }
    terminate() {}
  };
}
