// Asks the server for news: the status once a second, and what a running answer adds as it comes. Gradio's own stream
// would do, but costs many times as much for each message, here and in the server; so does a request for each.

const STATUS_MS = 1000;
const AGAIN_MS = 100; // at least, from one request for an answer's news to the next

export function followNews(store) {
  let awake = () => {};
  let followed = null;
  let last = 0; // number of the last message of its answer that came
  let laws = false; // whether the laws behind the rounds were asked for
  let open = null; // aborts the request that goes on

  const rest = (ms) => new Promise((resolve) => {
    awake = resolve;
    setTimeout(resolve, ms);
  });

  const take = (line) => {
    const space = line.indexOf(" ");
    const number = Number(line.slice(0, space));
    store.receive(line.slice(space + 1));
    if (number) last = number;
  };

  // The reply goes on for a while; each message is taken when its line is whole.
  const read = async (reply) => {
    const reader = reply.body.getReader();
    const decoder = new TextDecoder();
    let rest = "";
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      const lines = (rest + decoder.decode(value, { stream: true })).split("\n");
      rest = lines.pop();
      lines.forEach(take);
    }
  };

  const ask = async () => {
    const running = store.live.running ? store.live.answer : null;
    if (running !== followed) last = 0;
    followed = running;
    if (document.hidden && followed === null) return;
    laws = store.lawsWanted;
    const query = new URLSearchParams({
      ...(!document.hidden && { status: "" }),
      ...(followed !== null && { answer: followed, after: last }),
      ...(followed !== null && laws && { laws: "" }),
    });
    open = new AbortController();
    const reply = await fetch(`dspark/news?${query}`, { signal: open.signal });
    if (!reply.ok) throw new Error(`${reply.status}`);
    await read(reply);
  };

  // A new answer does not wait for the next status, nor the laws for the next reply.
  store.listen(({ live, lawsWanted }) => {
    if (live.running && live.answer !== followed) awake();
    else if (live.running && lawsWanted && !laws) open?.abort();
  });

  (async () => {
    for (;;) {
      const begun = performance.now();
      const failed = await ask().then(() => false, () => !open.signal.aborted); // the server is away, or the page is being left
      const pace = store.live.running && !failed ? AGAIN_MS : STATUS_MS;
      await rest(Math.max(0, begun + pace - performance.now()));
    }
  })();
}
