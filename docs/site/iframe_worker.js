// Runs the search's worker in a frame where pages are opened from files: browsers refuse workers there.
if (location.protocol === "file:") {
  window.Worker = window.IFrameWorker = class extends EventTarget {
    constructor(url) {
      super()
      const frame = document.createElement("iframe")
      frame.hidden = true
      document.body.appendChild(frame)
      const inner = (this.inner = frame.contentWindow)
      this.ready = new Promise((loaded) => {
        const script = inner.document.createElement("script")
        script.src = new URL(url, document.baseURI).href
        script.onload = loaded
        inner.postMessage = (data) => {
          const event = new MessageEvent("message", { data })
          this.dispatchEvent(event)
          if (this.onmessage) this.onmessage(event)
        }
        inner.document.body.appendChild(script)
      })
    }
    postMessage(data) {
      this.ready.then(() => this.inner.dispatchEvent(new this.inner.MessageEvent("message", { data })))
    }
    terminate() {
      this.inner.frameElement.remove()
    }
  }
}
