// Asks the server for news: the status once a second, and what a running answer adds as it comes. Gradio's own stream
// would do, but costs many times as much for each message, here and in the server.

const STATUS_MS = 1000;
const ANSWER_MS = 100; // at least, from one request to the next

export function followNews(store) {
  let told = -Infinity; // when the status was asked for
  let awake = () => {};
  let followed = null;
  let last = 0; // number of the last message of its answer that came

  const rest = (ms) => new Promise((resolve) => {
    awake = resolve;
    setTimeout(resolve, ms);
  });

  const ask = async (now) => {
    const due = now - told >= STATUS_MS && !document.hidden;
    const running = store.live.running ? store.live.answer : null;
    if (running !== followed) last = 0;
    followed = running;
    if (!due && followed === null) return;
    if (due) told = now;
    const query = new URLSearchParams({ ...(due && { status: "" }), ...(followed !== null && { answer: followed, after: last }) });
    const reply = await fetch(`dspark/news?${query}`);
    if (!reply.ok) throw new Error(`${reply.status}`);
    for (const message of (await reply.text()).split("\n")) store.receive(message);
    if (followed === running) last = Number(reply.headers.get("Last-Message") ?? last);
  };

  // A new answer does not wait for the next status.
  store.listen(({ live }) => {
    if (live.running && live.answer !== followed) awake();
  });

  (async () => {
    for (;;) {
      const begun = performance.now();
      const failed = await ask(begun).then(() => false, () => true); // the server is away, or the page is being left
      const pace = store.live.running && !failed ? ANSWER_MS : STATUS_MS;
      await rest(Math.max(0, begun + pace - performance.now()));
    }
  })();
}
