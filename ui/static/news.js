// Asks the server for news: the status once a second, and what a running answer adds as it comes. Gradio's own stream
// would do, but costs many times as much for each message, here and in the server; so does a request for each.

const STATUS_MS = 1000;
const AGAIN_MS = 100; // at least, from one request for an answer's news to the next
const SILENT_MS = 15_000; // a reply that has not ended by then does not end; the server ends it after two seconds
const AT_ONCE_MS = 1000; // a reply for a running answer that is over sooner, without news: the server has no such answer
const OVER_MS = 10_000; // so long the last message of an answer may take, which Gradio brings

export function followNews(store) {
  let awake = () => {};
  let followed = null;
  let last = 0; // number of the last message of its answer that came
  let laws = false; // whether the laws behind the rounds were asked for
  let open = null; // aborts the request that goes on
  let failures = 0; // in a row
  let over = null; // since when the server has no such answer

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

  // Once may be chance, or the page is being left; twice in a row the server is away.
  const heard = (answered) => {
    failures = answered ? 0 : failures + 1;
    store.failed ||= !answered;
    const away = failures > 1;
    if (away === store.away) return;
    store.away = away;
    store.changed();
  };

  const ask = async () => {
    const running = store.live.running ? store.live.answer : null;
    if (running !== followed) {
      last = 0;
      over = null;
    }
    followed = running;
    if (document.hidden && followed === null) return;
    laws = store.lawsWanted;
    const query = new URLSearchParams({
      ...(!document.hidden && { status: "" }),
      ...(followed !== null && { answer: followed, after: last }),
      ...(followed !== null && laws && { laws: "" }),
    });
    open = new AbortController();
    const begun = performance.now();
    const had = last;
    const reply = await fetch(`dspark/news?${query}`, { signal: AbortSignal.any([open.signal, AbortSignal.timeout(SILENT_MS)]) });
    if (!reply.ok) throw new Error(`${reply.status}`);
    heard(true);
    await read(reply);
    if (followed === null || last !== had || performance.now() > begun + AT_ONCE_MS) over = null;
    else over ??= begun;
    // Its end went to a connection that is gone without Gradio's noticing.
    if (over !== null && store.live.running && performance.now() > over + OVER_MS) location.reload();
  };

  // A new answer does not wait for the next status, nor the laws for the next reply.
  store.listen(({ live, lawsWanted }) => {
    if (live.running && live.answer !== followed) awake();
    else if (live.running && lawsWanted && !laws) open?.abort();
  });

  (async () => {
    for (;;) {
      const begun = performance.now();
      const failed = await ask().then(() => false, () => !open.signal.aborted);
      if (failed) heard(false);
      const pace = store.live.running && !failed ? AGAIN_MS : STATUS_MS;
      await rest(Math.max(0, begun + pace - performance.now()));
    }
  })();
}
