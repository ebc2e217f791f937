// Messages page by page with the server's cursor. A search that found nothing yet continues by itself, until it is stopped
// or reaches the server's bound; then it continues on request.

import { get } from "./api.js";
import { useEffect, useRef, useState } from "./ui.js";

const NOTHING = { messages: [], cursor: null, scanned: "0", of: "0", stopped: null, extra: {}, error: null, busy: false };

/** {messages, scanned, of, busy, error, cursor, more(), stop(), extra}: `wanted` messages are looked for at a time. */
export function usePages(path, query, { wanted = 50, identity }) {
  const [state, setState] = useState({ ...NOTHING, busy: true });
  const running = useRef(null);
  const key = `${path} ${JSON.stringify(query)}`;
  const known = useRef(NOTHING);
  const show = (changes) => {
    known.current = { ...known.current, ...changes };
    setState(known.current);
  };
  const read = async (cursor) => {
    running.current?.abort();
    const stop = new AbortController();
    running.current = stop;
    show({ busy: true, error: null });
    const goal = known.current.messages.length + wanted;
    let at = cursor;
    try {
      do {
        const { messages, cursor: next, scanned, of, stopped, ...extra } = await get(path, { ...query, limit: wanted, cursor: at }, { signal: stop.signal });
        const seen = new Set(known.current.messages.map(identity));
        const fresh = messages.filter((message) => !seen.has(identity(message)));
        show({ messages: [...known.current.messages, ...fresh], cursor: next, scanned, of, stopped, extra });
        at = next;
      } while (at && known.current.stopped !== "bound" && known.current.messages.length < goal && !stop.signal.aborted);
      show({ busy: false });
    } catch (error) {
      if (error.name !== "AbortError") show({ error, busy: false });
    }
  };
  useEffect(() => {
    known.current = NOTHING;
    read(null);
    return () => running.current?.abort();
  }, [key]);
  const stop = () => {
    running.current?.abort();
    show({ busy: false });
  };
  const again = () => {
    known.current = NOTHING;
    read(null);
  };
  return { ...state, more: () => read(known.current.cursor), stop, again };
}
